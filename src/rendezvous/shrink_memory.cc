#include "rendezvous/shrink_memory.h"

#include <algorithm>

#include "base/keep_latest.h"

namespace unisono::rendezvous {
namespace {

// The latest; null where there is none.
const ShrinkMessage* find(const std::deque<ShrinkMessage>& words, std::uint32_t communicator) {
  const auto found = std::find_if(
      words.rbegin(), words.rend(),
      [communicator](const ShrinkMessage& word) { return word.communicator == communicator; });
  return found == words.rend() ? nullptr : &*found;
}

}  // namespace

void ShrinkMemory::on_said(const ShrinkMessage& message) {
  if (message.step == ShrinkStep::kLeaves) {
    return keep_latest(message, kRememberedMax, &left_);
  }
  if (message.step == ShrinkStep::kAsk) {
    if (asked_.size() < kRememberedMax) asked_[message.communicator] = message;
    return;
  }
  const auto asked = asked_.find(message.communicator);
  if (asked == asked_.end()) return;
  asked->second.id = message.step == ShrinkStep::kReady ? message.id : 0;
}

void ShrinkMemory::on_word(const ShrinkMessage& word) {
  if (word.step == ShrinkStep::kForm) {
    const auto asked = asked_.find(word.communicator);
    if (asked != asked_.end()) asked->second.id = 0;
    return;
  }
  asked_.erase(word.communicator);
  if (word.step != ShrinkStep::kDone) return;
  ShrinkMessage finished = word;
  finished.step = ShrinkStep::kFinished;
  keep_latest(finished, kRememberedMax, &finished_);
}

ShrinkMessage ShrinkMemory::answer_to(const ShrinkMessage& left_out) {
  if (const ShrinkMessage* const known = find(finished_, left_out.communicator)) return *known;
  ShrinkMessage refusal = left_out;
  refusal.step = ShrinkStep::kRefused;
  keep_latest(refusal, kRememberedMax, &left_out_);
  return {ShrinkStep::kKnows, left_out.communicator, left_out.id, {}, {}, {}};
}

std::optional<ShrinkMessage> ShrinkMemory::refusal_of(const ShrinkMessage& ask) const {
  const ShrinkMessage* const known = find(left_out_, ask.communicator);
  return known == nullptr ? std::nullopt : std::optional(*known);
}

std::vector<ShrinkMessage> ShrinkMemory::to_repeat() const {
  std::vector<ShrinkMessage> words(finished_.begin(), finished_.end());
  words.insert(words.end(), left_.begin(), left_.end());
  for (const auto& [communicator, message] : asked_) words.push_back(message);
  return words;
}

}  // namespace unisono::rendezvous
