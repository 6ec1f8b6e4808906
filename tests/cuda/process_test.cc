// Ranks that are processes and share a GPU: every collective against the oracle through memory of
// each other's, mapped, and streams that wait for each other in shared flags. Each test forks its
// ranks before this process has touched a driver; a rank complains by throwing.
#include <gtest/gtest.h>

#include "tests/collective/matrix_cases.h"
#include "tests/cuda/device_user.h"

namespace unisono::test {
namespace {

void run_cases(Communicator& comm, std::vector<CollectiveCase> cases, CaseMemory& memory,
               CUstream stream) {
  for (CollectiveCase& c : cases) {
    c.options.stream = stream;
    const std::string wrong = run_case(comm, c, &memory);
    require(wrong.empty(), describe(c) + ": " + wrong);
  }
}

class DeviceProcesses : public testing::TestWithParam<int> {};

TEST_P(DeviceProcesses, EveryCollectiveEqualsTheOracle) {
  run_device_ranks({.ranks = GetParam(), .processes = true}, [](Communicator& comm) {
    DeviceUser user;
    run_cases(comm, device_cases(60 + static_cast<std::size_t>(comm.size()), comm.size()),
              user.memory(), user.stream());
  });
}

TEST_P(DeviceProcesses, MoreThanAMebibyteEqualsTheOracle) {
  run_device_ranks({.ranks = GetParam(), .processes = true}, [](Communicator& comm) {
    DeviceUser user;
    run_cases(comm, large_cases(comm.size()), user.memory(), user.stream());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceProcesses, testing::ValuesIn(device_rank_counts()),
                         testing::PrintToStringParamName());

TEST(DeviceProcessesOfTwoGpus, EveryCollectiveEqualsTheOracle) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  run_device_ranks({.ranks = 4, .processes = true, .devices = {0, 1}}, [](Communicator& comm) {
    DeviceUser user(comm.rank() % 2);
    run_cases(comm, device_cases(80, 4), user.memory(), user.stream());
  });
}

// Processes that share a GPU take turns on it: one of them launches for all.
TEST(DeviceProcessesOfAGpu, LaunchOneKernelForEachCall) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which counts launches";
  for (const int gpus : {1, 2}) {
    if (device_count() < gpus) GTEST_SKIP() << "needs two devices";
    run_device_ranks(
        {.ranks = 4, .processes = true, .devices = gpus == 1 ? std::vector{0} : std::vector{0, 1}},
        [=](Communicator& comm) {
          DeviceUser user(comm.rank() % gpus);
          constexpr std::size_t kCount = 1 << 20;
          constexpr std::uint64_t kCalls = 5;
          float* const data = user.make(std::vector<float>(kCount, 1.0F));
          const std::uint64_t before = fake()->counts().launches;
          for (std::uint64_t call = 0; call < kCalls; ++call) {
            comm.all_reduce(data, data, kCount, DataType::kFloat32, ops::max,
                            {.stream = user.stream()});
          }
          user.finish();
          const std::uint64_t launches = fake()->counts().launches - before;
          require(launches == (comm.rank() < gpus ? kCalls : 0),
                  "rank " + std::to_string(comm.rank()) + " has launched " +
                      std::to_string(launches) + " kernels");
        });
  }
}

TEST(DeviceProcessMemory, OfUnisonoAllocateIsReachedInPlace) {
  run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
    DeviceUser user;
    constexpr std::size_t kCount = 1 << 20;
    auto* const data =
        static_cast<std::byte*>(allocate(comm, kCount * sizeof(std::int32_t), MemoryKind::kCuda));
    const std::vector<std::int32_t> start(kCount, comm.rank() + 1);
    user.write(data, reinterpret_cast<const std::byte*>(start.data()), kCount * 4);
    const std::uint64_t copied = fake() == nullptr ? 0 : fake()->counts().copied_bytes;
    comm.all_reduce(data, data, kCount, DataType::kInt32, ops::sum, {.stream = user.stream()});
    user.finish();
    if (fake() != nullptr) {
      require(fake()->counts().copied_bytes == copied, "the call was staged");
    }
    const auto got = user.look(reinterpret_cast<std::int32_t*>(data), kCount);
    require(got == std::vector<std::int32_t>(kCount, 3), "a wrong sum");
    comm.barrier();
    release(comm, data);
  });
}

TEST(DeviceProcessMemory, MayBeFreedAndAllocatedAnewBetweenCalls) {
  run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
    DeviceUser user;
    for (std::int32_t round = 0; round < 6; ++round) {
      const std::size_t count = 1000 + 5000 * static_cast<std::size_t>(round % 3);
      auto* const data =
          static_cast<std::byte*>(allocate(comm, count * sizeof(round), MemoryKind::kCuda));
      const std::vector<std::int32_t> start(count, comm.rank() + round);
      user.write(data, reinterpret_cast<const std::byte*>(start.data()), count * 4);
      comm.all_reduce(data, data, count, DataType::kInt32, ops::sum, {.stream = user.stream()});
      user.finish();
      const auto got = user.look(reinterpret_cast<std::int32_t*>(data), count);
      require(got == std::vector<std::int32_t>(count, 2 * round + 1),
              "a wrong sum in round " + std::to_string(round));
      release(comm, data);
    }
  });
}

// The ranks of a part have other numbers in the job.
TEST(DeviceProcessMemory, ThatCannotBeMappedNamesItsOwnerInTheCommunicator) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which refuses to map";
  run_device_ranks({.ranks = 3, .processes = true}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    Communicator part = comm.split(comm.rank() == 0 ? -1 : 0, comm.rank());
    if (comm.rank() == 1) fake()->fail("cuIpcOpenMemHandle", 1, CUDA_ERROR_NOT_PERMITTED);
    if (comm.rank() > 0) {
      try {
        part.all_reduce(data, data, 1, DataType::kFloat32, ops::sum);
        require(false, "no failure");
      } catch (const Error& error) {
        require(error.rank() == 1, "rank " + std::to_string(error.rank()) + ": " + error.what());
      }
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace unisono::test
