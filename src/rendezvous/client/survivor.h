// A member's way to the communicator of the survivors (shrink_agreements.h): what it tells the
// arbiter, and what it is to do by the arbiter's word. No socket, no thread, no clock, no lock:
// src/comm/shrink.cc has these, tests/sim virtual time.
//
// Thread rule: one thread at a time; what ArbiterClient asks for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "rendezvous/client/arbiter_client.h"
#include "rendezvous/messages/shrink_message.h"

namespace unisono::rendezvous {

class Survivor {
 public:
  enum class Task : std::uint8_t {
    kWait,     ///< for the arbiter's word
    kForm,     ///< drop what it has made, make that of survivors() by the number id(), on_formed()
    kUse,      ///< go on in what it has made
    kGoAlone,  ///< drop what it has made, make a communicator of itself: nobody else is left
    kStop,     ///< drop what it has made: there is none, and why() not
  };

  /// `members`: ascending world ranks of `communicator`, which has failed. The others are waited
  /// for as long as `patience`.
  Survivor(ArbiterClient& arbiter, std::uint32_t communicator, std::vector<Rank> members,
           std::chrono::milliseconds patience);

  void ask(TimePoint now);
  /// `word`: the arbiter's latest on `communicator` since the last time; those before it are about
  /// attempts that are over. Not between kForm and on_formed(), nor after one that ends it.
  Task advance(const std::optional<ShrinkMessage>& word, TimePoint now);
  /// `outcome` of kForm; names a world rank.
  void on_formed(const Status& outcome, TimePoint now);

  std::uint32_t id() const { return id_; }
  /// Ascending world ranks.
  const std::vector<Rank>& survivors() const { return survivors_; }
  /// Names a world rank.
  const Status& why() const { return why_; }
  TimePoint next_due() const { return std::min(cannot_at_, lost_at_); }

 private:
  void say(ShrinkStep step, const Status& why = Status());
  Task on_word(const ShrinkMessage& word, TimePoint now);
  Task begin_attempt(const ShrinkMessage& word, TimePoint now);
  Task stop(const Status& why);
  /// The arbiter's next word is due from now on.
  void await_word(TimePoint now);

  ArbiterClient& arbiter_;
  const std::uint32_t communicator_;
  const std::vector<Rank> members_;
  const std::chrono::milliseconds patience_;
  std::uint32_t id_ = 0;  // of the attempt
  std::vector<Rank> survivors_;
  bool has_made_ = false;
  Status why_;
  /// Until then another survivor's failure, with which the arbiter begins anew, may explain why
  /// this attempt failed here.
  TimePoint cannot_at_ = kNever;
  TimePoint lost_at_ = kNever;
};

}  // namespace unisono::rendezvous
