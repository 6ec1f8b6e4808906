// What a rank has said and heard about shrinking that another arbiter has to know when this one is
// lost: which agreements it waits for, which it has made and which it uses. No sockets, no clock.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "rendezvous/messages/shrink_message.h"

namespace unisono::rendezvous {

class ShrinkMemory {
 public:
  void on_said(const ShrinkMessage& message);
  bool has_asked(std::uint32_t communicator) const { return asked_.contains(communicator); }
  /// Of the arbiter that rank `holder` holds.
  void on_word(const ShrinkMessage& word, Rank holder);
  /// As it is said to an arbiter: a wish with what this rank has made.
  ShrinkMessage with_made(ShrinkMessage message) const;
  /// The answer to a kLeftOut of the arbiter that rank `holder` holds: that this rank knows, and
  /// will not ask; or that it has gone on. It gives its word to one arbiter alone: nothing where
  /// another one has it.
  std::optional<ShrinkMessage> answer_to(const ShrinkMessage& left_out, Rank holder);
  /// Where others go on without this rank, which asks, or has asked: the arbiter's answer, whoever
  /// holds it now.
  std::optional<ShrinkMessage> refusal_of(std::uint32_t communicator) const;
  /// What to say again, in order: what others may wait for comes first.
  std::vector<ShrinkMessage> to_repeat() const;

 private:
  static constexpr std::size_t kRememberedMax = 1024;
  struct LeftOut {
    ShrinkMessage refusal;
    Rank holder;
  };
  /// The latest kForm, of which no arbiter has said what became.
  struct Attempt {
    std::uint32_t id;
    std::vector<Rank> members;
    Rank holder;
    bool is_made = false;
  };
  static std::uint32_t communicator_of(const ShrinkMessage& word) { return word.communicator; }
  static std::uint32_t communicator_of(const LeftOut& left) { return left.refusal.communicator; }
  template <typename Word>
  static const Word* find(const std::deque<Word>& words, std::uint32_t communicator);

  std::map<std::uint32_t, ShrinkMessage> asked_;  // by communicator
  std::map<std::uint32_t, Attempt> attempts_;     // the same
  std::deque<ShrinkMessage> finished_, left_;
  std::deque<LeftOut> left_out_;
};

}  // namespace unisono::rendezvous
