// The failure of a communicator: its first cause, and what its ranks disagree about until the job
// has said whose is the odd call.
//
// Thread rule: the engine's lock, but for cause() and has_cause(): any thread.
#pragma once

#include <atomic>
#include <mutex>

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
  /// The first cause wins: false for another one.
  bool set(const Status& cause) {
    if (is_set_.load(std::memory_order_relaxed)) return false;
    {
      const std::lock_guard guard(mutex_);
      cause_ = cause;
    }
    is_set_.store(true, std::memory_order_release);
    return true;
  }

  /// What it has led to, which every later call is told.
  void replace(const Status& cause) {
    const std::lock_guard guard(mutex_);
    cause_ = cause;
  }

  /// Notes a disagreement that nobody has decided on yet. After `until` this rank reports it
  /// itself. False if there is a cause or a disagreement already.
  bool dispute(const Status& seen, TimePoint until) {
    if (is_set_.load(std::memory_order_relaxed) || is_disputed()) return false;
    disputed_ = seen;
    decided_until_ = until;
    return true;
  }
  bool is_disputed() const { return !disputed_.ok(); }
  const Status& disputed() const { return disputed_; }
  bool is_overdue(TimePoint now) const { return is_disputed() && now >= decided_until_; }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> is_set_{false};
  Status cause_;
  Status disputed_;
  TimePoint decided_until_{};
};

}  // namespace unisono
