// A call of threads has failed and its kernel has not begun, behind a stream that stands still: the
// buffers are their owners' again, whatever the communicator has captured and the driver refused.
#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <memory>

#include "tests/cuda/odd_world.h"
#include "tests/cuda/shared_capture.h"
#include "tests/support/barrier_guards.h"
#include "tests/support/eventually.h"

namespace unisono::test {
namespace {

constexpr float kOwn = 77;

class DeviceLateLaunch : public DeviceOddWorld {
  // What streams may still look at is left to the driver.
  const Setting leaks_{"FAKE_CUDA_LEAKS", "ignore"};
};

// `fail` makes a call on `data` in the first user's stream, which stands still on rank 0, and has
// the communicator fail. A new one takes what that one gives back.
template <typename Fail>
void expect_called_off(const Fail& fail) {
  std::barrier<> both(2);
  run_device_ranks({.ranks = 2}, [&](Communicator& comm) {
    DeviceUser user, other;
    float* const data = user.make<float>({1});
    float* const fresh = other.make<float>({1});
    const InStep step(both);
    {
      Communicator doomed = comm.split(0, comm.rank());
      std::unique_ptr<HeldStream> held;
      if (comm.rank() == 0) held = std::make_unique<HeldStream>(user.stream());
      step.with_all();
      fail(doomed, user, other, data, step);
      await_failure(doomed);
      doomed = {};
      other.write(reinterpret_cast<std::byte*>(data), reinterpret_cast<const std::byte*>(&kOwn),
                  sizeof kOwn);
      step.with_all();
      Communicator next = comm.split(0, comm.rank());
      HeldStream other_held(other.stream());
      Request request = next.all_reduce_async(fresh, fresh, 1, kFloat, ops::sum,
                                              {.timeout = kDeadline, .stream = other.stream()});
      next.barrier({.timeout = kDeadline});
      const std::uint64_t launches = fake()->counts().launches;
      step.with_all();
      held.reset();
      EXPECT_TRUE(eventually([&] { return fake()->counts().launches > launches; }));
      user.finish();
      EXPECT_EQ(user.look(data, 1)[0], kOwn);
      EXPECT_FALSE(request.test()) << "a call is over before the work that it comes after";
      step.with_all();
      other_held.let_go();
      request.wait();
    }
    EXPECT_EQ(other.look(fresh, 1)[0], 2);
    step.with_all();
  });
}

TEST_F(DeviceLateLaunch, MovesNothingBesideACapture) {
  expect_success_alone([] {
    SharedCapture capture(2);
    expect_called_off([&](Communicator& doomed, DeviceUser& user, DeviceUser& other, float* data,
                          const InStep&) {
      doomed.all_reduce(data, data, 1, kFloat, ops::sum, {.stream = user.stream()});
      float* const captured = other.make<float>({1});
      const CUgraph graph = capture.run(doomed.rank(), other.stream(), [&] {
        doomed.all_reduce(captured, captured, 1, kFloat, ops::sum, {.stream = other.stream()});
      });
      if (doomed.rank() == 1) return doomed.abort("enough");
      expect_ok(function<decltype(&::cuGraphDestroy)>("cuGraphDestroy")(graph), "cuGraphDestroy");
    });
  });
}

// Two records are those of what the streams have done before the call.
TEST_F(DeviceLateLaunch, MovesNothingWhereItsEndIsNotRecorded) {
  expect_success_alone([] {
    expect_called_off(
        [](Communicator& doomed, DeviceUser& user, DeviceUser&, float* data, const InStep& step) {
          if (doomed.rank() == 0) fake()->fail("cuEventRecord", 3, CUDA_ERROR_OUT_OF_MEMORY);
          step.with_all();
          EXPECT_NE(failure_of([&] {
                      doomed.all_reduce(data, data, 1, kFloat, ops::sum, {.stream = user.stream()});
                      await_failure(doomed);
                      doomed.all_reduce(data, data, 1, kFloat, ops::sum, {.stream = user.stream()});
                    }),
                    "");
        });
  });
}

}  // namespace
}  // namespace unisono::test
