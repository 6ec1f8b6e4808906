// The one thing a user may implement to let ranks meet: a small key-value store.
#pragma once

#include <chrono>
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

}  // namespace unisono
