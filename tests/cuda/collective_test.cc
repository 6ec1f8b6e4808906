// Every collective on device memory against the oracle: ranks that are threads and share a GPU
// (kernels), ranks that have to take host memory, and ranks with and without a GPU together.
#include <gtest/gtest.h>

#include "tests/collective/matrix_cases.h"
#include "tests/cuda/device_user.h"
#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

// Runs the cases, every rank with its own stream.
void run_cases(Communicator& comm, std::vector<CollectiveCase> cases, Complaints* complaints,
               int device = 0) {
  DeviceUser user(device);
  for (CollectiveCase& c : cases) {
    c.options.stream = user.stream();
    try {
      const std::string wrong = run_case(comm, c, &user.memory());
      if (!wrong.empty()) complaints->add(comm.rank(), describe(c) + ": " + wrong);
    } catch (const Error& error) {
      complaints->add(comm.rank(), describe(c) + " threw " + error.what());
      throw;
    }
  }
}

class DeviceThreads : public testing::TestWithParam<int> {};

TEST_P(DeviceThreads, EveryCollectiveEqualsTheOracle) {
  Complaints complaints;
  run_device_ranks({.ranks = GetParam()}, [&](Communicator& comm) {
    const auto job = static_cast<std::size_t>(GetParam());
    run_cases(comm, device_cases(job, GetParam()), &complaints);
  });
  complaints.report(std::to_string(GetParam()) + " threads");
}

TEST_P(DeviceThreads, MoreThanAMebibyteEqualsTheOracle) {
  Complaints complaints;
  run_device_ranks({.ranks = GetParam()}, [&](Communicator& comm) {
    run_cases(comm, large_cases(GetParam()), &complaints);
  });
  complaints.report(std::to_string(GetParam()) + " threads");
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceThreads, testing::ValuesIn(device_rank_counts()),
                         testing::PrintToStringParamName());

TEST(DeviceThreadsInGreatNumber, AreServedUpToWhatAKernelTakesAndStagedBeyond) {
  for (const int ranks : {16, 17}) {
    Complaints complaints;
    run_device_ranks({.ranks = ranks}, [&](Communicator& comm) {
      run_cases(comm,
                {{Collective::kAllReduce, DataType::kFloat32, OpKind::kSum, 4099},
                 {Collective::kAllToAll, DataType::kInt16, OpKind::kSum, 33},
                 {Collective::kReduceScatterV, DataType::kInt32, OpKind::kMax, 50},
                 {Collective::kScan, DataType::kFloat64, OpKind::kSum, 129}},
                &complaints);
    });
    complaints.report(std::to_string(ranks) + " threads");
  }
}

// However many ranks there are: a later one might find a stream that waits, and would wait with it.
TEST(DeviceThreadsOfAGpu, LoadTheKernelsOnce) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which counts";
  const auto loaded_by = [](int ranks) {
    const std::uint64_t before = fake()->calls("cuLibraryLoadData");
    run_device_ranks({.ranks = ranks}, [](Communicator& comm) { comm.barrier(); });
    return fake()->calls("cuLibraryLoadData") - before;
  };
  const std::uint64_t by_one = loaded_by(1);
  EXPECT_GT(by_one, 0u);
  EXPECT_EQ(loaded_by(4), by_one);
}

// Each device has its own owner of pieces, and reaches the others' memory.
TEST(DeviceThreadsOfTwoGpus, EveryCollectiveEqualsTheOracle) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  for (const int ranks : {2, 3}) {
    Complaints complaints;
    run_device_ranks({.ranks = ranks, .devices = {0, 1}}, [&](Communicator& comm) {
      std::vector<CollectiveCase> cases = device_cases(20 + static_cast<std::size_t>(ranks), ranks);
      const std::vector<CollectiveCase> large = large_cases(ranks);
      cases.insert(cases.end(), large.begin(), large.end());
      run_cases(comm, cases, &complaints, comm.rank() % 2);
    });
    complaints.report(std::to_string(ranks) + " threads, two devices");
  }
}

TEST(DeviceStaging, EveryCollectiveOfRanksThatPublishedNoDeviceEqualsTheOracle) {
  for (const int ranks : device_rank_counts()) {
    if (ranks > 3) continue;
    Complaints complaints;
    run_device_ranks({.ranks = ranks, .devices = {}}, [&](Communicator& comm) {
      run_cases(comm, device_cases(40 + static_cast<std::size_t>(ranks), ranks), &complaints);
    });
    complaints.report(std::to_string(ranks) + " threads, staged");
  }
}

TEST(DeviceStaging, TransportsOfTheNetworkCarryDeviceBuffers) {
  for (const char* transport : {"tcp", "unix"}) {
    Complaints complaints;
    run_device_ranks({.ranks = 2, .transport = transport, .devices = {}},
                     [&](Communicator& comm) { run_cases(comm, large_cases(2), &complaints); });
    complaints.report(transport);
  }
}

TEST(DeviceStaging, RanksWithAndWithoutAGpuAreInOneCommunicator) {
  Complaints complaints;
  run_ranks(4, "auto", [&](Communicator& comm) {
    const std::vector<CollectiveCase> cases = device_cases(7, 4);
    if (comm.rank() % 2 == 0) return run_cases(comm, cases, &complaints);
    for (const CollectiveCase& c : cases) {
      const std::string wrong = run_case(comm, c);
      if (!wrong.empty()) complaints.add(comm.rank(), describe(c) + ": " + wrong);
    }
  });
  complaints.report("ranks 0 and 2 on a device");
}

// Longer than the staging memory that there is: so it goes in parts.
TEST(DeviceStaging, LongCallsGoInPartsWhereAllMembersHaveADevice) {
  setenv("UNISONO_SCRATCH_BYTES", "32M", 1);
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    constexpr std::size_t kCount = (std::size_t{10} << 20) + 3;
    std::vector<std::int32_t> start(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      start[i] = static_cast<std::int32_t>(i % 1000) * (comm.rank() + 1);
    }
    std::int32_t* const data = user.make(start);
    const auto add = [](const void* in, void* inout, std::size_t count, DataType, void*) {
      for (std::size_t i = 0; i < count; ++i) {
        static_cast<std::int32_t*>(inout)[i] += static_cast<const std::int32_t*>(in)[i];
      }
    };
    comm.all_reduce(data, data, kCount, DataType::kInt32, ops::user_op("add", add),
                    {.stream = user.stream()});
    user.finish();
    const std::vector<std::int32_t> got = user.look(data, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(got[i], static_cast<std::int32_t>(i % 1000) * 3) << i;
    }
  });
  unsetenv("UNISONO_SCRATCH_BYTES");
}

// No kernel keeps the exact order: the host does.
TEST(DeviceStaging, TheExactOrderIsKept) {
  run_device_ranks({.ranks = 3}, [](Communicator& comm) {
    DeviceUser user;
    constexpr float kTiny = 0x1p-40F;
    const float addends[]{1.0F, kTiny, -1.0F};  // in the canonical tree: 0
    float* const data = user.make<float>({addends[comm.rank()]});
    comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum,
                    {.order = Order::kExact, .stream = user.stream()});
    user.finish();
    EXPECT_EQ(user.look(data, 1), std::vector<float>{kTiny});
  });
}

TEST(DeviceCalls, WithoutAStreamReturnWhenTheResultIsThere) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1.0F + static_cast<float>(comm.rank()), 5.0F});
    comm.all_reduce(data, data, 2, DataType::kFloat32, ops::sum);
    EXPECT_EQ(user.look(data, 2), (std::vector<float>{3.0F, 10.0F}));
  });
}

TEST(DeviceCalls, AStreamOrdersThemWithTheWorkAroundThem) {
  run_device_ranks({.ranks = 3}, [](Communicator& comm) {
    DeviceUser user;
    constexpr int kRounds = 12;
    std::int64_t* const data = user.make<std::int64_t>({1});
    std::int64_t* const copy = user.make<std::int64_t>({0});
    const auto api = driver();
    for (int round = 0; round < kRounds; ++round) {
      comm.all_reduce(data, data, 1, DataType::kInt64, ops::max, {.stream = user.stream()});
      comm.all_reduce(data, data, 1, DataType::kInt64, ops::sum, {.stream = user.stream()});
      api->MemcpyAsync(reinterpret_cast<CUdeviceptr>(copy), reinterpret_cast<CUdeviceptr>(data), 8,
                       user.stream());
      comm.broadcast(copy, 1, DataType::kInt64, round % 3, {.stream = user.stream()});
    }
    user.finish();
    EXPECT_EQ(user.look(copy, 1)[0], 531'441) << "three to the power of the rounds";
  });
}

TEST(DeviceCalls, RequestsOfSeveralCallsEndInAnyOrder) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    std::vector<std::int32_t*> data;
    std::vector<Request> requests;
    for (int i = 0; i < 8; ++i) {
      data.push_back(user.make<std::int32_t>({i, comm.rank()}));
      requests.push_back(
          comm.all_reduce_async(data.back(), data.back(), 2, DataType::kInt32, ops::sum));
    }
    for (std::size_t i = requests.size(); i-- > 0;) requests[i].wait();
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(user.look(data[static_cast<std::size_t>(i)], 2),
                (std::vector<std::int32_t>{2 * i, 1}));
    }
  });
}

TEST(DeviceCalls, SendsAndReceivesCarryDeviceBuffers) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    const Rank peer = 1 - comm.rank();
    std::int32_t* const mine = user.make<std::int32_t>({comm.rank() + 10, 7, 8});
    std::int32_t* const theirs = user.make<std::int32_t>({0, 0, 0, -1});
    const std::vector<Call> calls{{.collective = Collective::kReceive,
                                   .out = theirs,
                                   .count = 4,
                                   .type = DataType::kInt32,
                                   .peer = peer,
                                   .tag = 3},
                                  {.collective = Collective::kSend,
                                   .in = mine,
                                   .count = 3,
                                   .type = DataType::kInt32,
                                   .peer = peer,
                                   .tag = 3}};
    comm.group(calls);
    EXPECT_EQ(user.look(theirs, 4), (std::vector<std::int32_t>{peer + 10, 7, 8, -1}));
  });
}

// The receive's result is what the stream waits for; the send of the same group must not.
TEST(DeviceCalls, AGroupOnOneStreamSendsAndReceivesAtOnce) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    const Rank peer = 1 - comm.rank();
    for (const std::size_t count : {std::size_t{1}, std::size_t{20'000}, std::size_t{1'000'000}}) {
      const std::int32_t* const mine =
          user.make<std::int32_t>(std::vector<std::int32_t>(count, comm.rank() + 5));
      std::int32_t* const theirs = user.make<std::int32_t>(std::vector<std::int32_t>(count));
      const Call receive{.collective = Collective::kReceive,
                         .out = theirs,
                         .count = count,
                         .type = DataType::kInt32,
                         .peer = peer,
                         .options = {.stream = user.stream()}};
      const Call send{.collective = Collective::kSend,
                      .in = mine,
                      .count = count,
                      .type = DataType::kInt32,
                      .peer = peer,
                      .options = {.stream = user.stream()}};
      for (int round = 0; round < 3; ++round) {
        comm.group(round == 1 ? std::vector<Call>{send, receive}
                              : std::vector<Call>{receive, send});
      }
      user.finish();
      EXPECT_EQ(user.look(theirs, count), std::vector<std::int32_t>(count, peer + 5));
      user.clear();
    }
  });
}

TEST(DeviceCalls, HostCallsBehindDeviceCallsKeepTheirOrder) {
  run_device_ranks({.ranks = 2}, [](Communicator& comm) {
    DeviceUser user;
    for (int round = 0; round < 20; ++round) {
      std::int32_t* const device = user.make<std::int32_t>({comm.rank() + round});
      comm.all_reduce(device, device, 1, DataType::kInt32, ops::sum, {.stream = user.stream()});
      std::vector<std::int32_t> host{comm.rank(), 2};
      comm.all_reduce(host, ops::sum);
      EXPECT_EQ(host, (std::vector<std::int32_t>{1, 4}));
      user.finish();
      EXPECT_EQ(user.look(device, 1)[0], 2 * round + 1);
      user.clear();
    }
  });
}

TEST(DeviceCalls, UserOperatorsTakeHostMemory) {
  run_device_ranks({.ranks = 3}, [](Communicator& comm) {
    DeviceUser user;
    std::int32_t* const data = user.make<std::int32_t>({comm.rank() + 1});
    const auto multiply = [](const void* in, void* inout, std::size_t count, DataType, void*) {
      for (std::size_t i = 0; i < count; ++i) {
        static_cast<std::int32_t*>(inout)[i] *= static_cast<const std::int32_t*>(in)[i];
      }
    };
    comm.all_reduce(data, data, 1, DataType::kInt32, ops::user_op("multiply", multiply));
    EXPECT_EQ(user.look(data, 1)[0], 6);
  });
}

}  // namespace
}  // namespace unisono::test
