// How ranks meet beside the ways of InitOptions: in a small key-value store, the one thing that a
// user may implement, or by an id that one rank makes and gives to the others.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "unisono/export.h"

namespace unisono {

/// Shared by all ranks of a job (Redis, etcd, a file system, c10d's store, ...). Used only while
/// init(), join(), grow() or rejoin() runs: rank 0 sets one value, the others get it; newcomers and
/// the group that they come to set and get some more. Without UNISONO_JOB_KEY the first value holds
/// a random key: whoever can read the store can join the job. Thread rule: called from the thread
/// that calls init(), join(), grow() or rejoin().
class UNISONO_API Store {
 public:
  virtual ~Store() = default;
  virtual void set(std::string_view key, std::string_view value) = 0;
  /// Waits up to `timeout`; an empty string when the key was not set in that time. However short
  /// that is, 1 ms is the least, it asks whoever holds the values: it is how to look.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
};

/// The store of `unisono run --max-restarts`, which all ranks of the job share as long as it runs.
/// Null where this process was not started by it. Throws Error: kInvalidArgument naming the
/// malformed variable. The store's functions throw Error: kRendezvous once the launcher is gone,
/// kOutOfResources of a set for which it has no room.
/// Any thread; one thread at a time uses it.
UNISONO_API std::unique_ptr<Store> launcher_store();

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
