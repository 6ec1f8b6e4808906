// Calls on device memory in a world that is not tidy: memory that is nearly used up, ranks that
// leave at once, calls that fail while streams stand still, devices without stream memory
// operations.
#include "tests/cuda/odd_world.h"

#include <gmock/gmock.h>

#include <barrier>
#include <memory>
#include <span>

#include "tests/support/barrier_guards.h"
#include "tests/support/same_bytes.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// A stream beside the one of the rank's user.
class OtherStream {
 public:
  OtherStream() { driver()->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0); }
  ~OtherStream() { driver()->StreamDestroy(stream_); }
  OtherStream(const OtherStream&) = delete;
  void write(float* place, float value) { copy(place, &value); }
  float read(const float* place) {
    float value = 0;
    copy(&value, place);
    return value;
  }

 private:
  void copy(void* to, const void* from) {
    driver()->MemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                          sizeof(float), stream_);
    driver()->StreamSynchronize(stream_);
  }
  CUstream stream_ = nullptr;
};

// More ranks than share device memory: their calls are staged from the start, and both at once want
// room for their parts.
TEST_F(DeviceOddWorld, TwoLongStagedCallsAtOnceShareLittleRoom) {
  const Setting little("UNISONO_SCRATCH_BYTES", "8M");
  constexpr int kRanks = 17;
  constexpr std::size_t kCount = (std::size_t{8} << 20) / sizeof(float) + 1;
  const std::vector<float> start(kCount, 1.0F), sum(kCount, kRanks);
  run_device_ranks({.ranks = kRanks}, [&](Communicator& comm) {
    DeviceUser user;
    float* const data[] = {user.make(start), user.make(start)};
    const CallOptions options{.timeout = kDeadline};
    EXPECT_EQ(
        failure_of([&] {
          Request one = comm.all_reduce_async(data[0], data[0], kCount, kFloat, ops::sum, options);
          Request two = comm.all_reduce_async(data[1], data[1], kCount, kFloat, ops::sum, options);
          one.wait();
          two.wait();
        }),
        "");
    for (const float* const place : data) {
      const std::vector<float> seen = user.look(place, kCount);
      EXPECT_TRUE(same_bytes(std::as_bytes(std::span(seen)), std::as_bytes(std::span(sum))))
          << "a wrong sum";
    }
  });
}

TEST_F(DeviceOddWorld, AnExchangeOfMoreThanHalfTheRoomEndsOnBothSides) {
  const Setting little("UNISONO_SCRATCH_BYTES", "4M");
  constexpr std::size_t kCount = (std::size_t{3} << 20) / sizeof(float);
  run_device_ranks({.ranks = 2, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    const Rank peer = 1 - comm.rank();
    float* const sent = user.make(std::vector<float>(kCount, static_cast<float>(comm.rank())));
    float* const got = user.make(std::vector<float>(kCount, -1.0F));
    EXPECT_EQ(failure_of([&] {
                Request receiving =
                    comm.receive_async(got, kCount, kFloat, peer, 0, {.timeout = kDeadline});
                Request sending =
                    comm.send_async(sent, kCount, kFloat, peer, 0, {.timeout = kDeadline});
                sending.wait();
                receiving.wait();
              }),
              "");
    EXPECT_TRUE(user.look(got, kCount) == std::vector<float>(kCount, static_cast<float>(peer)))
        << "not what the peer sent";
  });
}

// To free page-locked memory the driver waits for all streams, and one waits for the call that
// wants the room.
TEST_F(DeviceOddWorld, BlocksOfManySmallMessagesThatFillTheRoomDoNotHoldUpALongCall) {
  const Setting little("UNISONO_SCRATCH_BYTES", "1M");
  constexpr int kMessages = 20;  // of which each has a block of 64 KiB
  constexpr std::size_t kCount = 100'000;
  run_device_ranks({.ranks = 2, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make(std::vector<float>(kCount, 1.0F));
    const Rank peer = 1 - comm.rank();
    std::vector<Request> requests;
    for (int tag = 0; tag < kMessages; ++tag) {
      requests.push_back(comm.receive_async(data + tag, 1, kFloat, peer, tag));
      requests.push_back(comm.send_async(data + kMessages + tag, 1, kFloat, peer, tag));
    }
    for (Request& request : requests) request.wait();
    EXPECT_EQ(failure_of([&] {
                comm.all_reduce(data, data, kCount, kFloat, ops::sum,
                                {.timeout = kDeadline, .stream = user.stream()});
              }),
              "");
    user.finish();
    EXPECT_TRUE(user.look(data, kCount) == std::vector<float>(kCount, 2.0F)) << "a wrong sum";
  });
}

// Neither while it is under way nor by the block that it leaves behind.
TEST_F(DeviceOddWorld, AMessageLongerThanTheRoomLeavesRoomForOtherCalls) {
  const Setting little("UNISONO_SCRATCH_BYTES", "1M");
  constexpr std::size_t kLong = 500'000;
  constexpr std::size_t kCount = 10'000;
  run_device_ranks({.ranks = 2, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    const Rank peer = 1 - comm.rank();
    float* const sent = user.make(std::vector<float>(kLong, 1.0F));
    float* const got = user.make(std::vector<float>(kLong));
    float* const data = user.make(std::vector<float>(kCount, 1.0F));
    float* const sums = user.make(std::vector<float>(kCount));
    const CallOptions options{.timeout = kDeadline};
    EXPECT_EQ(failure_of([&] {
                Request receiving = comm.receive_async(got, kLong, kFloat, peer, 0, options);
                comm.all_reduce(data, sums, kCount, kFloat, ops::sum, options);
                comm.send(sent, kLong, kFloat, peer, 0, options);
                receiving.wait();
                comm.all_reduce(sums, data, kCount, kFloat, ops::sum, options);
              }),
              "");
    EXPECT_TRUE(user.look(data, kCount) == std::vector<float>(kCount, 4.0F)) << "a wrong sum";
    EXPECT_TRUE(user.look(got, kLong) == std::vector<float>(kLong, 1.0F)) << "a wrong message";
  });
}

// Rank 0's work is what the others' streams wait for, and it closes while some of them may not yet
// have come to that.
TEST_F(DeviceOddWorld, ARankMayCloseAtOnceWhileOthersStillJoinItsWork) {
  constexpr int kRanks = 4;
  constexpr int kRounds = 200;
  run_device_ranks({.ranks = kRanks}, [](Communicator& comm) {
    DeviceUser user;
    for (int round = 0; round < kRounds; ++round) {
      float* const data = user.make<float>({static_cast<float>(round)});
      auto brief = std::make_unique<Communicator>(comm.split(0, comm.rank()));
      ASSERT_EQ(failure_of([&] {
                  brief->all_reduce(data, data, 1, kFloat, ops::sum,
                                    {.timeout = kDeadline, .stream = user.stream()});
                }),
                "")
          << "in round " << round;
      if (comm.rank() == 0) brief.reset();
      ASSERT_EQ(user.look(data, 1)[0], static_cast<float>(kRanks * round)) << "round " << round;
    }
  });
}

// The library leaves to the driver what streams that are stuck may still look at: so these two run
// where nobody counts what is left.
void fail_under_a_held_stream() {
  constexpr float kOwn = 77;
  std::barrier<> both(2);
  run_device_ranks({.ranks = 2}, [&](Communicator& comm) {
    DeviceUser user;
    OtherStream other;
    float* const data = user.make<float>({1});
    const InStep step(both);
    Communicator doomed = comm.split(0, comm.rank());
    std::unique_ptr<HeldStream> hold;
    if (comm.rank() == 0) hold = std::make_unique<HeldStream>(user.stream());
    EXPECT_EQ(failure_of([&] {
                doomed.all_reduce(data, data, 1, kFloat, ops::sum, {.stream = user.stream()});
              }),
              "");
    step.with_all();
    if (comm.rank() == 1) doomed.abort("enough");
    await_failure(doomed);
    EXPECT_THAT(failure_of([&] { doomed.all_reduce(data, data, 1, kFloat, ops::sum); }),
                HasSubstr("enough"));
    step.with_all();
    if (comm.rank() == 1) other.write(data, kOwn);
    step.with_all();
    hold.reset();
    user.finish();
    // What the failed call had in other streams has had its time.
    std::this_thread::sleep_for(milliseconds(100));
    if (comm.rank() == 1) {
      EXPECT_EQ(other.read(data), kOwn);
    }
    step.with_all();
  });
}

TEST_F(DeviceOddWorld, AFailedCallNeverWritesABufferThatWasGivenBack) {
  const Setting leaks("FAKE_CUDA_LEAKS", "ignore");
  expect_success_alone(fail_under_a_held_stream);
}

// Rank 2 has nothing to do with the communicator that fails. What held it up for a moment for each
// call would hold it up beyond its deadline.
void abort_many_calls() {
  constexpr int kCalls = 50;
  std::barrier<> all(3);
  run_device_ranks({.ranks = 3}, [&](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    const InStep step(all);
    Communicator doomed = comm.split(comm.rank() < 2 ? 0 : -1, comm.rank());
    std::unique_ptr<HeldStream> hold;
    if (!doomed.empty()) {
      hold = std::make_unique<HeldStream>(user.stream());
      for (int i = 0; i < kCalls; ++i) {
        doomed.all_reduce(data, data, 1, kFloat, ops::sum, {.stream = user.stream()});
      }
    }
    step.with_all();
    if (comm.rank() == 1) doomed.abort("enough");
    if (!doomed.empty()) await_failure(doomed);
    EXPECT_EQ(failure_of([&] { comm.barrier({.timeout = seconds(10)}); }), "");
    step.with_all();
    hold.reset();
    user.finish();
  });
}

// Its kernels wait in streams, and nothing of it is done on the host any more.
void fail_in_a_stream() {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    Communicator doomed = comm.duplicate();
    doomed.barrier();
    DeviceUser user;
    float* const mine = user.make<float>({1});
    HeldStream held(user.stream());
    doomed.all_reduce(mine, mine, 1, kFloat, ops::sum, {.stream = user.stream()});
    comm.barrier();
    if (comm.rank() == 1) doomed.abort("enough");
    await_failure(doomed);
    held.let_go();
    const Communicator left = doomed.shrink();
    EXPECT_EQ(left.parent_failed_in().number, 1);
    EXPECT_TRUE(left.parent_failed_in().had_begun);
    user.finish();
  });
}

TEST_F(DeviceOddWorld, ACallThatFailsInAStreamIsWhereItsRanksStood) {
  const Setting leaks("FAKE_CUDA_LEAKS", "ignore");
  expect_success_alone(fail_in_a_stream);
}

TEST_F(DeviceOddWorld, ManyAbortedCallsInAStreamDoNotHoldUpAnotherCommunicator) {
  const Setting leaks("FAKE_CUDA_LEAKS", "ignore");
  expect_success_alone(abort_many_calls);
}

TEST_F(DeviceOddWorld, AProcessGoesOnAfterItsCommunicatorIsGoneFromUnderAHeldStream) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      float* const data = user.make<float>({1});
      auto doomed = std::make_unique<Communicator>(comm.split(0, comm.rank()));
      const CallOptions options{.timeout = kDeadline, .stream = user.stream()};
      doomed->all_reduce(data, data, 1, kFloat, ops::sum, options);
      user.finish();
      comm.barrier();
      std::unique_ptr<HeldStream> hold;
      if (comm.rank() == 0) hold = std::make_unique<HeldStream>(user.stream());
      doomed->all_reduce(data, data, 1, kFloat, ops::sum, options);
      comm.barrier();
      if (comm.rank() == 0) doomed->abort("enough");
      await_failure(*doomed);
      doomed.reset();
      comm.barrier();
      hold.reset();
      user.finish();
      float* const fresh = user.make<float>({5});
      comm.all_reduce(fresh, fresh, 1, kFloat, ops::sum, options);
      require(user.look(fresh, 1)[0] == 10, "a wrong sum after the failure");
      comm.barrier();
    });
  });
}

// A launch fails behind a stream that stands still: what is in the stream already is waited for,
// and left as it is when it does not end.
TEST_F(DeviceOddWorld, WhatAFailedLaunchLeavesInAStreamIsNotGivenBackUnderIt) {
  const Setting leaks("FAKE_CUDA_LEAKS", "ignore");
  const auto fail_behind_a_held_stream = [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    const CallOptions options{.timeout = kDeadline, .stream = user.stream()};
    comm.all_reduce(data, data, 1, kFloat, ops::sum, options);
    user.finish();
    comm.barrier();
    std::unique_ptr<HeldStream> hold;
    if (comm.rank() == 0) {
      hold = std::make_unique<HeldStream>(user.stream());
      fake()->fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    failure_of([&] { comm.all_reduce(data, data, 1, kFloat, ops::sum, options); });
    await_failure(comm);
    hold.reset();
    user.finish();
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        run_device_ranks({.ranks = 2, .processes = true}, fail_behind_a_held_stream);
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "still wait behind a failed call");
}

// Every rank makes its calls in one order, and each waits for another one: only what comes into
// streams has to come there in that order.
TEST_F(DeviceOddWorld, AStagedCallDoesNotWaitForTheCallBeforeItOnAnotherCommunicator) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 3, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      float* const data = user.make<float>({1});
      float on_host = 1;
      Communicator a = comm.split(comm.rank() == 2 ? -1 : 0, comm.rank());
      Communicator b = comm.split(comm.rank() == 1 ? -1 : 0, comm.rank());
      const CallOptions options{.timeout = kDeadline};
      const auto sum_on_host = [&] {  // is staged, and a call on the device all the same
        b.all_reduce(&on_host, &on_host, 1, kFloat, ops::sum,
                     {.timeout = kDeadline, .stream = user.stream()});
        user.finish();
      };
      if (comm.rank() == 0) {
        Request first = a.all_reduce_async(data, data, 1, kFloat, ops::sum, options);
        sum_on_host();
        first.wait();
      } else if (comm.rank() == 2) {
        sum_on_host();
        comm.send(&on_host, 1, kFloat, 1, 0, options);
      } else {
        comm.receive(&on_host, 1, kFloat, 2, 0, options);
        a.all_reduce(data, data, 1, kFloat, ops::sum, options);
      }
      require(on_host == 2, "a wrong sum on the host");
      require(comm.rank() == 2 || user.look(data, 1)[0] == 2, "a wrong sum");
    });
  });
}

void expect_right_results_on(int device, Communicator& comm) {
  DeviceUser user(device);
  float* const data = user.make<float>({1, 2});
  float* const all = user.make(std::vector<float>(2 * static_cast<std::size_t>(comm.size())));
  for (const bool has_stream : {true, false}) {
    CallOptions options{.timeout = kDeadline};
    if (has_stream) options.stream = user.stream();
    comm.all_reduce(data, data, 2, kFloat, ops::sum, options);
    comm.all_gather(data, all, 2, kFloat, options);
    user.finish();
    const float n = static_cast<float>(comm.size()) * (has_stream ? 1 : 2);
    require(user.look(data, 2) == std::vector<float>{n, 2 * n}, "a wrong sum");
    const std::vector<float> both{n, 2 * n, n, 2 * n};
    require(user.look(all, 4) == both, "gathered wrongly");
  }
}

void expect_right_results(Communicator& comm) { expect_right_results_on(0, comm); }

TEST_F(DeviceOddWorld, DevicesThatCannotReachEachOtherAreStaged) {
  const Setting apart("FAKE_CUDA_P2P", "none");
  for (const bool processes : {true, false}) {
    SCOPED_TRACE(processes ? "processes" : "threads");
    expect_success_alone([&] {
      run_device_ranks({.ranks = 2, .processes = processes, .devices = {0, 1}},
                       [](Communicator& comm) { expect_right_results_on(comm.rank(), comm); });
    });
  }
}

TEST_F(DeviceOddWorld, WithoutStreamMemoryOperationsResultsAreRight) {
  const Setting off("FAKE_CUDA_MEMOPS", "off");
  for (const std::vector<int>& devices : {std::vector<int>{}, std::vector<int>{0}}) {
    for (const bool processes : {true, false}) {
      SCOPED_TRACE(std::string(processes ? "processes" : "threads") +
                   (devices.empty() ? ", staged" : ""));
      expect_success_alone([&] {
        run_device_ranks({.ranks = 2, .processes = processes, .devices = devices},
                         expect_right_results);
      });
    }
  }
}

}  // namespace
}  // namespace unisono::test
