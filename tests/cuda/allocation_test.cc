// Calls on device memory and the host's: looks at one that waits allocate nothing, and one that
// fails for want of memory leaves nothing to wait for that was not launched.
#include <gmock/gmock.h>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "base/sanitizers.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/cuda/odd_world.h"
#include "tests/support/barrier_guards.h"
#include "tests/support/log_guard.h"
#include "tests/support/refused_allocation.h"

namespace unisono::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kMost = 40;  // allocations of a call; there are fewer

TEST(DeviceAllocation, IsNotMadeByLooksAtACallWhoseStreamIsBusy) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  run_device_ranks({.ranks = 2, .processes = true, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    const CallOptions options{.timeout = kDeadline, .stream = user.stream()};
    comm.all_reduce(data, data, 1, kFloat, ops::sum, options);
    user.finish();
    HeldStream held(user.stream());
    Request waiting = comm.all_reduce_async(data, data, 1, kFloat, ops::sum, options);
    const std::uint64_t before = allocations;
    bool is_over = false;
    for (int look = 0; look < 1000; ++look) is_over = is_over || waiting.test();
    const std::uint64_t made = allocations - before;
    require(!is_over, "the stream is not busy");
    require(made < 10, "1000 looks made " + std::to_string(made) + " allocations");
    held.let_go();
    waiting.wait();
    require(user.look(data, 1)[0] == 4, "a wrong sum");
  });
}

// Driver calls of the process so far.
struct DriverCalls {
  std::uint64_t launches = fake()->calls("cuLaunchKernel");
  std::uint64_t words = fake()->calls("cuStreamBatchMemOp");
};

// The second call of two threads, with the `nth` allocation of the one that launches refused.
// False: that thread made fewer.
bool call_without_memory(std::uint64_t nth) {
  SCOPED_TRACE("allocation " + std::to_string(nth));
  bool refused = false;
  DriverCalls before, after;
  LogGuard log;
  log.expect("");
  std::barrier<> both(2);
  const auto body = [&](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    const InStep step(both);
    Communicator doomed = comm.split(0, comm.rank());
    const CallOptions options{.timeout = kDeadline, .stream = user.stream()};
    doomed.all_reduce(data, data, 1, kFloat, ops::sum, options);
    user.finish();
    step.with_all();
    if (comm.rank() == 0) before = {};
    step.with_all();
    if (comm.rank() == 0) refused_allocation = allocations + nth;
    try {
      doomed.all_reduce(data, data, 1, kFloat, ops::sum, options);
    } catch (const std::exception&) {
    }
    if (comm.rank() == 0) refused = allocations >= std::exchange(refused_allocation, 0);
    step.with_all();
    if (comm.rank() == 0) after = {};
  };
  try {
    spawn(2, body, {.as = SpawnOptions::As::kThreads, .timeout = kCallTimeout, .devices = {0}});
  } catch (const Error&) {  // where it was not the call alone that lacked memory
  }
  if (after.launches == before.launches) {
    EXPECT_THAT(log.lines(), Not(Contains(HasSubstr("still wait behind"))));
  } else {
    EXPECT_GT(after.words, before.words) << "nothing tells when the launch is over";
  }
  return refused;
}

TEST(DeviceAllocation, ThatFailsLeavesNoLaunchToWaitForThatWasNotMade) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const Setting leaks("FAKE_CUDA_LEAKS", "ignore");  // of what is launched and not told of
  expect_success_alone([] {
    cuda::register_kernel_twins(*fake());
    int refused = 0;
    for (std::uint64_t nth = 1; nth <= kMost; ++nth) refused += call_without_memory(nth) ? 1 : 0;
    EXPECT_GT(refused, 0) << "no allocation was refused";
  });
}

}  // namespace
}  // namespace unisono::test
