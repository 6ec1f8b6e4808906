// Copies of staged calls that fail: the driver takes one and refuses what comes behind it, or one
// takes long. The call does not end, its memory is nobody else's, and the caller's stream does not
// go on, before the copy is over.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
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

std::shared_ptr<device::DeviceShare> share_here() {
  CUcontext context = nullptr;
  require(driver()->CtxGetCurrent(&context) == CUDA_SUCCESS, "no context");
  return *device::DeviceShare::of(driver(), 0, context);
}

std::uint64_t copied_bytes() { return fake()->counts().copied_bytes; }

void refuse_record_behind_copy(Communicator& comm) {
  DeviceUser user;
  float* const data = user.make(std::vector<float>(kCount, 1.0F));
  comm.all_reduce(data, data, kCount, kFloat, ops::sum);  // opens the device
  HeldStream held(share_here()->outward_stream());
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

// What lies behind the call in the stream has the last word about the buffer.
void abort_before_copy_in_is_over(Communicator& comm) {
  constexpr std::byte kLater{0x4d};
  DeviceUser user;
  auto* const data = reinterpret_cast<std::byte*>(user.make(std::vector<float>(kCount, 1.0F)));
  comm.all_reduce(data, data, kCount, kFloat, ops::sum);  // opens the device
  HeldStream held(share_here()->inward_stream());
  const std::uint64_t before = fake()->calls("cuMemcpyAsync");
  comm.all_reduce(data, data, kCount, kFloat, ops::sum, {.stream = user.stream()});
  constexpr std::size_t kBytes = kCount * sizeof(float);
  ASSERT_EQ(driver()->MemsetD8Async(reinterpret_cast<CUdeviceptr>(data),
                                    static_cast<unsigned char>(kLater), kBytes, user.stream()),
            CUDA_SUCCESS);
  ASSERT_TRUE(eventually([&] { return fake()->calls("cuMemcpyAsync") == before + 2; }));
  std::thread let_go([&] {
    const TimePoint limit = Clock::now() + device::kReleaseLimit / 3;
    while (driver()->StreamQuery(user.stream()) != CUDA_SUCCESS && Clock::now() < limit) {
      std::this_thread::yield();
    }
    held.let_go();
  });
  comm.abort("enough");
  let_go.join();
  user.finish();
  EXPECT_EQ(user.look(data, kBytes), std::vector<std::byte>(kBytes, kLater));
}

using DeviceLateCopy = DeviceOddWorld;

TEST_F(DeviceLateCopy, IsOverWhenItsCallHasEnded) {
  const Setting leaks("FAKE_CUDA_LEAKS", "ignore");  // where it was not waited for
  expect_success_alone(
      [] { run_device_ranks({.ranks = 1, .devices = {}}, refuse_record_behind_copy); });
}

TEST_F(DeviceLateCopy, IsOverWhenTheStreamGoesOn) {
  expect_success_alone(
      [] { run_device_ranks({.ranks = 1, .devices = {}}, abort_before_copy_in_is_over); });
}

}  // namespace
}  // namespace unisono::test
