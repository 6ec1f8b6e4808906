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

#include "rendezvous/shrink_message.h"

namespace unisono::rendezvous {

class ShrinkMemory {
 public:
  void on_said(const ShrinkMessage& message);
  void on_word(const ShrinkMessage& word);
  /// The answer to a kLeftOut: that this rank knows, and will not ask; or that it has gone on.
  ShrinkMessage answer_to(const ShrinkMessage& left_out);
  /// Where others go on without this rank, which asks: the arbiter's answer, whoever holds it now.
  std::optional<ShrinkMessage> refusal_of(const ShrinkMessage& ask) const;
  /// What to say again, in order: what others may wait for comes first.
  std::vector<ShrinkMessage> to_repeat() const;

 private:
  static constexpr std::size_t kRememberedMax = 1024;

  std::map<std::uint32_t, ShrinkMessage> asked_;          // by communicator; with what it has made
  std::deque<ShrinkMessage> finished_, left_, left_out_;  // the last: refusals
};

}  // namespace unisono::rendezvous
