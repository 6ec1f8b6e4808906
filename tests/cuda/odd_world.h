// What the tests of a world that is not tidy share: streams that stand still, settings of the
// environment, and processes that begin anew.
// Thread rule: each rank has its own, and expect_success_alone() is for the test's main thread.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "tests/cuda/device_user.h"
#include "tests/support/rank_job.h"
#include "tests/support/setting.h"
#include "tests/support/watchdog.h"

namespace unisono::test {

inline constexpr DataType kFloat = DataType::kFloat32;
// Far more than any of these calls needs.
inline constexpr std::chrono::seconds kDeadline{20};
// Long enough that what must not happen meanwhile has every chance to.
inline constexpr std::chrono::milliseconds kBusyFor{300};

// A stream that is destroyed with this.
class OwnStream {
 public:
  explicit OwnStream(int priority, unsigned flags = CU_STREAM_NON_BLOCKING) {
    require(driver()->StreamCreateWithPriority(&stream_, flags, priority) == CUDA_SUCCESS,
            "no stream");
  }
  ~OwnStream() {
    driver()->StreamSynchronize(stream_);
    driver()->StreamDestroy(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  CUstream get() const { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

// A stream in which nothing runs until it is let go.
class HeldStream {
 public:
  explicit HeldStream(CUstream stream) : stream_(stream) { fake()->hold_stream(stream); }
  ~HeldStream() { let_go(); }
  HeldStream(const HeldStream&) = delete;
  void let_go() {
    if (!std::exchange(is_free_, true)) fake()->release_stream(stream_);
  }

 private:
  CUstream stream_;
  bool is_free_ = false;
};

// A stream that goes on by itself after a while, whatever its owner's thread does.
class BusyStream {
 public:
  explicit BusyStream(CUstream stream)
      : held_(stream), end_([this] {
          std::this_thread::sleep_for(kBusyFor);
          held_.let_go();
        }) {}
  ~BusyStream() { end_.join(); }

 private:
  HeldStream held_;
  std::thread end_;
};

// For longer than any of its calls waits.
inline void await_failure(const Communicator& comm) {
  const TimePoint end = Clock::now() + kCallTimeout + std::chrono::seconds(20);
  while (comm.status().ok()) {
    require(Clock::now() < end, "the communicator has not failed");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Runs the body in a process that begins anew, with this test alone: for other settings of the fake
// driver, and for ranks that are processes.
inline void expect_success_alone(const std::function<void()>& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        alarm(is_sanitized() ? 120 : 60);
        body();
        const testing::TestResult& result =
            *testing::UnitTest::GetInstance()->current_test_info()->result();
        for (int i = 0; i < result.total_part_count(); ++i) {
          std::fprintf(stderr, "%s\n", result.GetTestPartResult(i).message());
        }
        std::exit(result.Failed() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

class DeviceOddWorld : public testing::Test {
 protected:
  void SetUp() override {
    if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  }
};

}  // namespace unisono::test
