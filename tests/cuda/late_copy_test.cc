// The driver takes a copy of a staged call and refuses what comes behind it: the call does not end,
// and its memory is nobody else's, before the copy is over.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cuda/device/device_share.h"
#include "cuda/device/leaked.h"
#include "tests/cuda/odd_world.h"
#include "tests/support/eventually.h"

namespace unisono::test {
namespace {

constexpr std::size_t kCount = 1000;

// Lets the stream go when the library asks about it, or has ended the call without.
class LetGoOnQuestion {
 public:
  LetGoOnQuestion(HeldStream& held, const std::atomic<bool>& is_over)
      : thread_([&, before = fake()->calls("cuStreamQuery")] {
          while (!is_over && fake()->calls("cuStreamQuery") == before) std::this_thread::yield();
          held.let_go();
        }) {}
  ~LetGoOnQuestion() { thread_.join(); }

 private:
  std::thread thread_;
};

std::uint64_t copied_bytes() { return fake()->counts().copied_bytes; }

void refuse_record_behind_copy(Communicator& comm) {
  DeviceUser user;
  float* const data = user.make(std::vector<float>(kCount, 1.0F));
  comm.all_reduce(data, data, kCount, kFloat, ops::sum);  // opens the device
  CUcontext context = nullptr;
  ASSERT_EQ(driver()->CtxGetCurrent(&context), CUDA_SUCCESS);
  const auto share = *device::DeviceShare::of(driver(), 0, context);
  HeldStream held(share->outward_stream());
  std::atomic<bool> is_over = false;
  const std::uint64_t before = copied_bytes();
  const TimePoint began = Clock::now();
  // The first one is of what the caller's stream has done before.
  fake()->fail("cuEventRecord", 2, CUDA_ERROR_OUT_OF_MEMORY);
  std::string failed;
  {
    const LetGoOnQuestion let_go(held, is_over);
    failed = failure_of([&] { comm.all_reduce(data, data, kCount, kFloat, ops::sum); });
    // It is not waited for any longer.
    const bool was_short = Clock::now() - began < device::kReleaseLimit;
    EXPECT_TRUE(!was_short || copied_bytes() == before + kCount * sizeof(float));
    is_over = true;
  }
  EXPECT_NE(failed, "");
}

using DeviceLateCopy = DeviceOddWorld;

TEST_F(DeviceLateCopy, IsOverWhenItsCallHasEnded) {
  const Setting leaks("FAKE_CUDA_LEAKS", "ignore");  // where it was not waited for
  expect_success_alone(
      [] { run_device_ranks({.ranks = 1, .devices = {}}, refuse_record_behind_copy); });
}

}  // namespace
}  // namespace unisono::test
