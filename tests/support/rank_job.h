// Runs a job of ranks in a test and turns what goes wrong into failures of the test: at most a
// handful of them, named by rank. Nothing waits longer than kCallTimeout.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/watchdog.h"
#include "unisono/unisono.hpp"

namespace unisono::test {

/// Beside other tests the thread sanitizer makes minutes of what takes seconds.
inline constexpr std::chrono::seconds kCallTimeout{is_thread_sanitized() ? 30 : 10};

/// What the ranks of a job complain about. Any thread.
class Complaints {
 public:
  void add(Rank rank, const std::string& text);
  /// Fails the running test for the first few and counts the others.
  void report(const std::string& job) const;
  bool none() const;

 private:
  static constexpr std::size_t kShownMax = 5;
  mutable std::mutex mutex_;
  std::vector<std::string> shown_;
  std::size_t count_ = 0;
};

/// Ranks as threads; a body that throws fails the test.
void run_ranks(int ranks, const std::string& transport,
               const std::function<void(Communicator&)>& body);

/// Ranks as processes. Call it while this process has one thread.
void spawn_processes(int ranks, const std::string& transport,
                     const std::function<void(Communicator&)>& body);

}  // namespace unisono::test
