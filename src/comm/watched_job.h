// What a watchdog asks of the job around its communicator.
//
// Thread rule: the engine's lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/call_record.h"
#include "rendezvous/arbiter.h"
#include "unisono/types.h"

namespace unisono {

/// Ranks are those of the job.
class WatchedJob {
 public:
  virtual ~WatchedJob() = default;

  /// The deadline of calls that have none of their own.
  virtual std::chrono::milliseconds timeout() const = 0;
  /// After this the user hears of a call that takes long.
  virtual std::chrono::milliseconds warn_after() const = 0;

  /// Lets `peer` know which call this rank is in.
  virtual void probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
                     const CallRecord& record) = 0;
  /// Compares the call with what peers have said about it.
  virtual void compare_call(std::uint32_t communicator, std::uint64_t sequence,
                            const CallRecord& record) = 0;
  /// Tells the arbiter for whom this rank waits.
  virtual void report_waiting(const RunningWait& wait) = 0;
  /// Asks the arbiter who is at fault that the deadline of `call`, a text, has passed. Its decision
  /// follows.
  virtual void report_timeout(const RunningWait& wait, const std::vector<Rank>& members,
                              const std::string& call) = 0;
  /// That operation has ended well after all.
  virtual void withdraw_timeout(std::uint32_t communicator, std::uint64_t operation) = 0;
};

}  // namespace unisono
