// How ranks meet beside the ways of InitOptions: in a small key-value store, the one thing that a
// user may implement, or by an id that one rank makes and gives to the others.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "unisono/export.h"

namespace unisono {

/// Shared by all ranks of a job (Redis, etcd, a file system, c10d's store, ...). Used only while
/// init() or join() runs: rank 0 sets one value, the others get it. Without UNISONO_JOB_KEY the
/// value holds a random key: whoever can read the store can join the job. Thread rule: called from
/// the thread that calls init() or join().
class UNISONO_API Store {
 public:
  virtual ~Store() = default;
  virtual void set(std::string_view key, std::string_view value) = 0;
  /// Waits up to `timeout`; an empty string when the key was not set in that time.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
};

/// Bytes to be given to the other ranks unchanged. Whoever has them can join the job, until all
/// have.
struct UniqueId {
  std::array<std::byte, 128> bytes{};
};

/// Listens for the ranks of one job, until its rank 0, which is of this process, has joined by the
/// id. Rank 0 need not come first. UNISONO_INTERFACE chooses the address. Throws Error: kRendezvous
/// where no socket can be had, kOutOfResources where 256 ids wait for their rank 0. Any thread.
UNISONO_API UniqueId make_unique_id();

}  // namespace unisono
