#include "rendezvous/failure/shrink_memory.h"

#include <algorithm>
#include <utility>

#include "base/keep_latest.h"

namespace unisono::rendezvous {

// The latest; null where there is none.
template <typename Word>
const Word* ShrinkMemory::find(const std::deque<Word>& words, std::uint32_t communicator) {
  const auto found = std::find_if(words.rbegin(), words.rend(), [&](const Word& word) {
    return communicator_of(word) == communicator;
  });
  return found == words.rend() ? nullptr : &*found;
}

void ShrinkMemory::on_said(const ShrinkMessage& message) {
  if (message.step == ShrinkStep::kLeaves) {
    return keep_latest(message, kRememberedMax, &left_);
  }
  if (message.step == ShrinkStep::kAsk) {
    if (asked_.size() < kRememberedMax) asked_[message.communicator] = message;
    return;
  }
  const auto attempt = attempts_.find(message.communicator);
  if (attempt == attempts_.end() || attempt->second.id != message.id) return;
  attempt->second.is_made = message.step == ShrinkStep::kReady;
}

// Whoever says kForm knows that nobody uses what this rank has made before, or is here itself.
void ShrinkMemory::on_word(const ShrinkMessage& word, Rank holder) {
  const auto attempt = attempts_.find(word.communicator);
  if (word.step == ShrinkStep::kForm) {
    if (attempt != attempts_.end() || attempts_.size() < kRememberedMax) {
      attempts_[word.communicator] = {word.id, word.members, holder};
    }
    return;
  }
  // Another arbiter that refuses does not know what that one has said.
  if (attempt != attempts_.end() &&
      (word.step == ShrinkStep::kDone || attempt->second.holder == holder)) {
    attempts_.erase(attempt);
  }
  asked_.erase(word.communicator);
  if (word.step != ShrinkStep::kDone) return;
  ShrinkMessage finished = word;
  finished.step = ShrinkStep::kFinished;
  keep_latest(finished, kRememberedMax, &finished_);
}

std::optional<ShrinkMessage> ShrinkMemory::answer_to(const ShrinkMessage& left_out, Rank holder) {
  if (const auto* const known = find(finished_, left_out.communicator)) return *known;
  const LeftOut* const before = find(left_out_, left_out.communicator);
  if (before != nullptr && before->holder != holder) return {};
  ShrinkMessage refusal = left_out;
  refusal.step = ShrinkStep::kRefused;
  keep_latest(LeftOut{std::move(refusal), holder}, kRememberedMax, &left_out_);
  asked_.erase(left_out.communicator);
  return ShrinkMessage{ShrinkStep::kKnows, left_out.communicator, left_out.id, {}, {}, {}};
}

std::optional<ShrinkMessage> ShrinkMemory::refusal_of(std::uint32_t communicator) const {
  const LeftOut* const known = find(left_out_, communicator);
  return known == nullptr ? std::nullopt : std::optional(known->refusal);
}

ShrinkMessage ShrinkMemory::with_made(ShrinkMessage message) const {
  const auto attempt = attempts_.find(message.communicator);
  if (message.step != ShrinkStep::kAsk || attempt == attempts_.end() || !attempt->second.is_made) {
    return message;
  }
  message.id = attempt->second.id;
  message.made = attempt->second.members;
  return message;
}

std::vector<ShrinkMessage> ShrinkMemory::to_repeat() const {
  std::vector<ShrinkMessage> words(finished_.begin(), finished_.end());
  words.insert(words.end(), left_.begin(), left_.end());
  for (const auto& [communicator, message] : asked_) words.push_back(with_made(message));
  return words;
}

}  // namespace unisono::rendezvous
