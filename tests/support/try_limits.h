// Rounds of a test that waits for a limit to pass, and that a busy machine disturbs where it holds
// up a rank that is correct for as long. Where the limit need not pass a longer one is better.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

namespace unisono::test {

/// Has a round with each limit until nothing fails in one; what fails in the last one counts.
/// Failures in other processes are no failures of a round, and what it throws ends the test.
inline void try_limits(const std::vector<std::chrono::milliseconds>& limits,
                       const std::function<void(std::chrono::milliseconds)>& round) {
  using testing::ScopedFakeTestPartResultReporter;
  for (std::size_t i = 0; i + 1 < limits.size(); ++i) {
    testing::TestPartResultArray failures;
    {
      const ScopedFakeTestPartResultReporter reporter(
          ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
      round(limits[i]);
    }
    if (failures.size() == 0) return;
    std::printf("again, after what failed with a limit of %lld ms: %s\n",
                static_cast<long long>(limits[i].count()), failures.GetTestPartResult(0).message());
  }
  round(limits.back());
}

}  // namespace unisono::test
