#include "rendezvous/shrink_memory.h"

#include "base/keep_latest.h"

namespace unisono::rendezvous {

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

std::vector<ShrinkMessage> ShrinkMemory::to_repeat() const {
  std::vector<ShrinkMessage> words(finished_.begin(), finished_.end());
  words.insert(words.end(), left_.begin(), left_.end());
  for (const auto& [communicator, message] : asked_) words.push_back(message);
  return words;
}

}  // namespace unisono::rendezvous
