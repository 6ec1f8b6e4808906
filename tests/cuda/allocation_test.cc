// Looks at a call on device memory that waits allocate nothing. Allocations of this program go
// through the counter below.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/sanitizers.h"
#include "tests/cuda/odd_world.h"

namespace {
thread_local std::uint64_t allocations = 0;
}  // namespace

#if !UNISONO_ADDRESS_SANITIZER && !UNISONO_THREAD_SANITIZER
extern "C" {
void* __libc_malloc(std::size_t bytes);

void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
}
#endif

namespace unisono::test {
namespace {

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

}  // namespace
}  // namespace unisono::test
