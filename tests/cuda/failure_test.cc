// What goes wrong with calls on device memory: told on every rank, named, and never a hang.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>

#include "tests/cuda/device_user.h"
#include "tests/support/barrier_guards.h"
#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(DeviceFailure, DeviceAndHostMemoryInOneCallIsToldOnBothRanks) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    float host[4] = {};
    float* const device = user.make<float>({1, 2, 3, 4});
    float* const data = comm.rank() == 0 ? device : host;
    const std::string failure =
        failure_of([&] { comm.all_reduce(data, data, 4, DataType::kFloat32, ops::sum); });
    EXPECT_THAT(failure, AllOf(HasSubstr("calls differ"), HasSubstr("device memory"),
                               HasSubstr("rank 0"), HasSubstr("rank 1")));
  });
}

TEST(DeviceFailure, DifferingCountsAreToldOnBothRanks) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1, 2, 3, 4});
    const auto count = static_cast<std::size_t>(3 + comm.rank());
    const std::string failure =
        failure_of([&] { comm.all_reduce(data, data, count, DataType::kFloat32, ops::sum); });
    EXPECT_THAT(failure, AllOf(HasSubstr("count 3"), HasSubstr("count 4")));
  });
}

TEST(DeviceFailure, DifferingBlocksOfAVCollectiveAreToldOnBothRanks) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    float* const in = user.make<float>({1, 2, 3, 4});
    float* const out = user.make<float>(std::vector<float>(8));
    const std::vector<std::size_t> mine{2, 2}, theirs{static_cast<std::size_t>(2 + comm.rank()), 2};
    const std::string failure =
        failure_of([&] { comm.all_to_all_v(in, mine, {}, out, theirs, {}, DataType::kFloat32); });
    EXPECT_THAT(failure, AllOf(HasSubstr("calls differ"), HasSubstr("rank 0"),
                               HasSubstr("2 elements"), HasSubstr("rank 1 has 3")));
  });
}

TEST(DeviceFailure, ARankThatNeverCallsIsNamedAtTheDeadline) {
  std::barrier<> told(2);
  run_device_ranks({.ranks = 2}, [&](Communicator& comm) {
    DeviceUser user;
    const LeaveTogether together(told);
    if (comm.rank() == 1) return;
    float* const data = user.make<float>({1});
    const std::string failure = failure_of([&] {
      comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum,
                      {.timeout = std::chrono::milliseconds(300), .stream = user.stream()});
    });
    EXPECT_THAT(failure, AllOf(HasSubstr("timeout"), HasSubstr("rank 1")));
    user.finish();  // nothing is left that waits in the stream
  });
}

// Staged from the start, and because a buffer cannot be reached: the host refuses the call alone.
TEST(DeviceFailure, AnUnknownAlgorithmIsRefusedAndTheCommunicatorGoesOn) {
  for (const std::vector<int>& devices : {std::vector<int>{}, std::vector<int>{0}}) {
    SCOPED_TRACE(devices.empty() ? "staged" : "fallen back");
    run_device_ranks({.ranks = 2, .devices = devices}, [](Communicator& comm) {
      DeviceUser user;
      float host[] = {1, 1};
      float* const device = user.make<float>({1, 1});
      float* const data = comm.rank() == 0 ? host : device;
      for (const bool in_stream : {true, false}) {
        CallOptions options{.algorithm = "rnig", .stream = user.stream()};
        if (!in_stream) options.stream = nullptr;
        EXPECT_THAT(failure_of([&] {
                      comm.all_reduce(data, data, 2, DataType::kFloat32, ops::sum, options);
                    }),
                    AllOf(HasSubstr("invalid argument"), HasSubstr("rnig")));
        user.finish();
      }
      comm.all_reduce(data, data, 2, DataType::kFloat32, ops::sum, {.stream = user.stream()});
      user.finish();
      EXPECT_EQ(comm.rank() == 0 ? host[1] : user.look(device, 2)[1], 2);
    });
  }
}

TEST(DeviceFailure, AbortEndsAStagedCallAndItsStreamGoesOn) {
  run_device_ranks({.ranks = 2, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      comm.abort("enough");
      return;
    }
    const std::string failure = failure_of([&] {
      comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum, {.stream = user.stream()});
      while (comm.status().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum, {.stream = user.stream()});
    });
    EXPECT_THAT(failure, HasSubstr("enough"));
    user.finish();
  });
}

TEST(DeviceFailure, FreedMemoryIsRefusedWithItsAddress) {
  run_device_ranks({.ranks = 1}, [](Communicator& comm) {
    DeviceUser user;
    void* const data = allocate(comm, 4096, MemoryKind::kCuda);
    release(comm, data);
    const std::string failure = failure_of([&] {
      comm.all_reduce(data, data, 16, DataType::kFloat32, ops::sum, {.stream = user.stream()});
    });
    EXPECT_NE(failure, "");
    float* const good = user.make<float>({2});
    comm.all_reduce(good, good, 1, DataType::kFloat32, ops::sum);
    EXPECT_EQ(user.look(good, 1)[0], 2) << "the communicator goes on";
  });
}

TEST(DeviceFailure, ABufferThatEndsTooEarlyIsRefused) {
  run_device_ranks({.ranks = 1}, [](Communicator& comm) {
    DeviceUser user;
    std::byte* const start = user.take(16);
    const std::size_t count = DeviceUser::kArenaBytes;
    EXPECT_THAT(
        failure_of([&] { comm.all_reduce(start, start, count, DataType::kFloat32, ops::sum); }),
        HasSubstr("invalid argument"));
  });
}

TEST(DeviceFailure, AnInjectedLaunchFailureNamesRankAndDevice) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1, 2});
    comm.all_reduce(data, data, 2, DataType::kFloat32, ops::sum, {.stream = user.stream()});
    user.finish();
    comm.barrier();
    if (comm.rank() == 0) fake()->fail("cuLaunchKernel", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    comm.barrier();
    const std::string failure = failure_of([&] {
      comm.all_reduce(data, data, 2, DataType::kFloat32, ops::sum, {.stream = user.stream()});
    });
    EXPECT_THAT(failure, AllOf(HasSubstr("rank 0"), HasSubstr("device 0"),
                               HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
  });
}

TEST(DeviceFailure, AStreamOfNoContextIsRefused) {
  if (fake() == nullptr) GTEST_SKIP() << "a real driver need not bear a stream that is gone";
  run_device_ranks({.ranks = 1}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    CUstream gone = nullptr;
    const auto api = driver();
    ASSERT_EQ(api->StreamCreateWithPriority(&gone, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    ASSERT_EQ(api->StreamDestroy(gone), CUDA_SUCCESS);
    EXPECT_NE(failure_of([&] {
                comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum, {.stream = gone});
              }),
              "");
    comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum, {.stream = user.stream()});
    user.finish();
  });
}

TEST(DeviceFailure, WithCudaOffDeviceMemoryIsRefusedAndNotTouched) {
  driver();  // as in a program that uses the GPU by itself
  setenv("UNISONO_CUDA", "off", 1);
  run_device_ranks({.ranks = 2, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    EXPECT_THAT(failure_of([&] { comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum); }),
                AllOf(HasSubstr("unsupported"), HasSubstr("UNISONO_CUDA=off")));
    EXPECT_THAT(failure_of([&] { allocate(comm, 64, MemoryKind::kCuda); }),
                HasSubstr("UNISONO_CUDA=off"));
    std::vector<float> host{1};
    comm.all_reduce(host, ops::sum);
    EXPECT_EQ(host[0], 2);
  });
  unsetenv("UNISONO_CUDA");
}

TEST(DeviceFailure, BuffersOfAnotherDeviceAreRefusedWithBothNames) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver's second device";
  run_device_ranks({.ranks = 1}, [](Communicator& comm) {
    DeviceUser other(1);
    float* const data = other.make<float>({1});
    EXPECT_THAT(failure_of([&] { comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum); }),
                AllOf(HasSubstr("device 1"), HasSubstr("device 0"), HasSubstr("rank 0")));
  });
}

TEST(DeviceFailure, ADeviceThatDoesNotExistIsRefusedAtTheRendezvous) {
  std::string told;
  try {
    spawn(1, [](Communicator&) {}, {.timeout = kCallTimeout, .devices = {99}});
  } catch (const Error& error) {
    told = error.what();
  }
  EXPECT_THAT(told, HasSubstr("99"));
}

TEST(DeviceFailure, StagingBeyondItsBoundNamesTheVariable) {
  setenv("UNISONO_SCRATCH_BYTES", "1M", 1);
  run_device_ranks({.ranks = 1, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    constexpr std::size_t kCount = std::size_t{4} << 20;
    auto* const data = reinterpret_cast<float*>(user.take(kCount * sizeof(float)));
    EXPECT_THAT(
        failure_of([&] { comm.all_reduce(data, data, kCount, DataType::kFloat32, ops::sum); }),
        AllOf(HasSubstr("out of resources"), HasSubstr("UNISONO_SCRATCH_BYTES")));
  });
  // Either block alone would do.
  run_device_ranks({.ranks = 1, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    constexpr std::size_t kCount = std::size_t{1} << 20;
    std::byte* const in = user.take(kCount);
    std::byte* const out = user.take(kCount);
    EXPECT_THAT(failure_of([&] { comm.all_gather(in, out, kCount, DataType::kUint8); }),
                AllOf(HasSubstr("out of resources"), HasSubstr("UNISONO_SCRATCH_BYTES")));
  });
  unsetenv("UNISONO_SCRATCH_BYTES");
}

TEST(DeviceGroup, OneThreadDrivesSeveralRanks) {
  run_for_device_ranks({.ranks = 3}, [](const std::vector<Communicator*>& comms) {
    DeviceUser user;
    std::vector<std::int32_t*> data;
    std::vector<MemberCall> calls;
    for (Communicator* const comm : comms) {
      data.push_back(user.make<std::int32_t>({comm->rank(), 10 * comm->rank()}));
      calls.push_back({comm,
                       {.collective = Collective::kAllReduce,
                        .in = data.back(),
                        .out = data.back(),
                        .count = 2,
                        .type = DataType::kInt32,
                        .options = {.stream = user.stream()}}});
    }
    for (int round = 0; round < 3; ++round) group(calls);
    user.finish();
    for (const std::int32_t* const place : data) {
      EXPECT_EQ(user.look(place, 2), (std::vector<std::int32_t>{27, 270}));
    }
  });
}

// A call on host memory has to wait for the one on device memory before it to meet; what comes
// after them waits too.
TEST(DeviceGroup, CallsOfACommunicatorBeginInTheirOrder) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    std::int32_t* const first = user.make<std::int32_t>({1});
    std::int32_t second = 2;
    std::int32_t* const third = user.make<std::int32_t>({3});
    std::vector<MemberCall> calls;
    for (std::int32_t* const data : {first, &second, third}) {
      calls.push_back({&comm,
                       {.collective = Collective::kAllReduce,
                        .in = data,
                        .out = data,
                        .count = 1,
                        .type = DataType::kInt32}});
    }
    if (comm.rank() == 0) {
      group(calls);
    } else {
      for (const MemberCall& each : calls) comm.run(each.call);
    }
    require(user.look(first, 1)[0] == 2 && second == 4 && user.look(third, 1)[0] == 6, "wrong");
  });
}

}  // namespace
}  // namespace unisono::test
