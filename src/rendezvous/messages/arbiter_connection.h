// A rank's connection to the arbiter of its job, over whatever it runs: what ArbiterClient says
// there and hears.
//
// Thread rule: that of the implementation.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/shrink_message.h"

namespace unisono::rendezvous {

/// What an arbiter has said that its rank has not looked at.
struct ArbiterNews {
  std::vector<FailureDecision> decisions;
  std::vector<std::uint32_t> questions;  ///< communicators whose calls it asks for
  std::vector<ShrinkMessage> shrink_words;
  bool asks_for_waits = false;
};

class ArbiterConnection {
 public:
  virtual ~ArbiterConnection() = default;

  /// One load: no lock, no system call.
  virtual bool has_news() const = 0;
  virtual ArbiterNews take_news() = 0;
  /// Reads what has arrived though nobody had a turn to.
  virtual void catch_up() = 0;
  /// Nobody answers any more, nor will.
  virtual bool is_lost() const = 0;
  /// Once it is lost: JobRecord::is_last().
  virtual bool is_last() const = 0;
  /// Once it is lost: ControlSession::partition().
  virtual Status partition() const = 0;
  /// As RendezvousPoint::silence.
  virtual std::chrono::milliseconds silence() const = 0;

  /// A whole message to the arbiter; dropped where there is none.
  virtual void report(std::string bytes) = 0;
  /// The same of what the next arbiter needs to hear as well, if this one does not answer.
  virtual void report_lasting(std::string bytes) = 0;
  virtual void report_broken_link(Rank peer, const Status& cause) = 0;
  virtual void report_waiting(const WaitMessage& wait) = 0;
  /// Lasting, until it is withdrawn.
  virtual void report_timeout(const WaitMessage& wait) = 0;
  virtual void withdraw_timeout(const WaitMessage& wait) = 0;
  virtual void say_shrink(const ShrinkMessage& message) = 0;
  /// Says goodbye. Idempotent.
  virtual void leave() = 0;
};

}  // namespace unisono::rendezvous
