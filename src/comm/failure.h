// The failure of a communicator: its first cause, and what this rank has seen of one until the job
// has said what it is.
//
// Thread rule: the engine's lock, but for cause(), place() and has_cause(): any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/result.h"

namespace unisono {

class Failure {
 public:
  /// True once set() was called; what was written before that is seen.
  bool has_cause() const { return is_set_.load(std::memory_order_acquire); }
  /// Ok: none.
  Status cause() const {
    const std::lock_guard guard(mutex_);
    return cause_;
  }
  /// Its code and rank with other words, which take no memory where those do not.
  Status in_brief(const char* words) const {
    const std::lock_guard guard(mutex_);
    return {cause_.code(), words, cause_.rank()};
  }
  /// Where this rank was then.
  FailedIn place() const {
    const std::lock_guard guard(mutex_);
    return place_;
  }
  /// The first cause wins: false for another one.
  bool set(const Status& cause, FailedIn place = {}) {
    if (is_set_.load(std::memory_order_relaxed)) return false;
    Status copy = cause;  // may lack memory, and nothing has changed then
    {
      const std::lock_guard guard(mutex_);
      cause_ = std::move(copy);
      place_ = place;
    }
    is_set_.store(true, std::memory_order_release);
    return true;
  }

  /// What it has led to, which every later call is told.
  void replace(Status cause) {
    const std::lock_guard guard(mutex_);
    cause_ = std::move(cause);
  }

  /// Notes what this rank has seen and nobody has decided on yet. After `until` it is the cause.
  /// False if there is a cause or a suspicion already.
  bool suspect(const Status& seen, TimePoint until) {
    if (is_set_.load(std::memory_order_relaxed) || is_suspected()) return false;
    suspicion_ = seen;
    decided_until_ = until;
    return true;
  }
  bool is_suspected() const { return !suspicion_.ok(); }
  const Status& suspicion() const { return suspicion_; }
  bool is_overdue(TimePoint now) const { return is_suspected() && now >= decided_until_; }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> is_set_{false};
  Status cause_;
  FailedIn place_;
  Status suspicion_;
  TimePoint decided_until_{};
};

}  // namespace unisono
