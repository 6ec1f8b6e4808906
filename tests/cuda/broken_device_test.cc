// The device of one rank breaks with a call in its streams, whose words are not written any more:
// the devices of the other ranks are as they were.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>

#include "tests/cuda/kernel_twins.h"
#include "tests/cuda/odd_world.h"
#include "tests/support/barrier_guards.h"
#include "tests/support/eventually.h"
#include "tests/support/log_guard.h"

namespace unisono::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::atomic<bool> may_break = false;

// A kernel that writes where no device may.
void break_device(void*, fake_cuda::Translator& translator) {
  if (!eventually([] { return may_break.load(); })) return;
  translator.at(reinterpret_cast<void*>(sizeof(void*)), 1, fake_cuda::Access::kWrite);
}
void move_nothing(const void*, fake_cuda::Dimensions, fake_cuda::Dimensions) {}

// So short a call that rank 0's device alone has a kernel.
void break_under_a_call() {
  for (const cuda::KernelBody& kernel : cuda::kernel_bodies()) {
    fake()->register_kernel(
        {kernel.name.c_str(), sizeof(cuda::DeviceWork), break_device, move_nothing});
  }
  LogGuard log;
  log.expect("");
  std::barrier<> both(2);
  spawn(2,
        [&](Communicator& comm) {
          DeviceUser user(comm.rank());
          float* const data = user.make<float>({1});
          const InStep step(both);
          Communicator doomed = comm.split(0, comm.rank());
          doomed.all_reduce(data, data, 1, kFloat, ops::sum, {.stream = user.stream()});
          step.with_all();
          may_break = true;
          await_failure(doomed);
          EXPECT_THAT(doomed.status().message(), HasSubstr("rank 0: "));
        },
        {.as = SpawnOptions::As::kThreads, .timeout = kCallTimeout, .devices = {0, 1}});
  EXPECT_THAT(log.lines(), Not(Contains(HasSubstr("still wait behind"))));
}

class DeviceBroken : public DeviceOddWorld {
  // A broken context frees nothing.
  const Setting leaks_{"FAKE_CUDA_LEAKS", "ignore"};
};

TEST_F(DeviceBroken, OfAnotherThreadLeavesNothingStuck) {
  expect_success_alone(break_under_a_call);
}

}  // namespace
}  // namespace unisono::test
