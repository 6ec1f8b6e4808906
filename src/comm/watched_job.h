// What a watchdog asks of the job around its communicator.
//
// Thread rule: the engine's lock.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/call_record.h"
#include "engine/messenger.h"
#include "rendezvous/client/arbiter_client.h"
#include "unisono/types.h"

namespace unisono {

/// Ranks are those of the job.
class WatchedJob {
 public:
  struct Times {
    std::chrono::milliseconds timeout;     ///< the deadline of calls that have none of their own
    std::chrono::milliseconds warn_after;  ///< the user hears of a call that takes longer
  };
  /// The messenger and the arbiter's client outlive it.
  WatchedJob(Messenger& messenger, ArbiterClient& arbiter, Times times)
      : messenger_(messenger), arbiter_(arbiter), times_(times) {}
  virtual ~WatchedJob() = default;

  std::chrono::milliseconds timeout() const { return times_.timeout; }
  std::chrono::milliseconds warn_after() const { return times_.warn_after; }

  /// Lets `peer` know which call this rank is in.
  virtual void probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
                     const CallRecord& record) {
    messenger_.probe(peer, communicator, sequence, record);
  }
  /// Compares the call with what peers have said about it.
  virtual void compare_call(std::uint32_t communicator, std::uint64_t sequence,
                            const CallRecord& record) {
    messenger_.compare_call(communicator, sequence, record);
  }
  /// Tells the arbiter for whom this rank waits.
  virtual void report_waiting(const rendezvous::WaitMessage& wait) {
    arbiter_.report_waiting(wait);
  }
  /// Asks the arbiter who is at fault that the deadline of `wait.call` has passed. Its decision
  /// follows.
  virtual void report_timeout(const rendezvous::WaitMessage& wait) {
    arbiter_.report_timeout(wait);
  }
  /// That operation has ended well after all.
  virtual void withdraw_timeout(std::uint32_t communicator, std::uint64_t operation) {
    arbiter_.withdraw_timeout(communicator, operation);
  }

 private:
  Messenger& messenger_;
  ArbiterClient& arbiter_;
  const Times times_;
};

}  // namespace unisono
