// GPUDirect in collectives that only move blocks: ranks alone on their hosts, over the reference
// transport. The fake driver ends whoever touches device memory as if it were the host's.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/cuda/device_user.h"
#include "tests/cuda/host_job.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

const HostJob kAlone{.hosts = {0, 1, 2}, .transport = "loopback"};
constexpr std::size_t kBlock = 70'001;  // of int16: more than 64 KiB

/// Calls of `function` that the driver sees while the job runs.
std::uint64_t calls_in(const char* function, const HostJob& job,
                       const std::function<void(Communicator&, DeviceUser&)>& body) {
  const std::uint64_t before = fake()->calls(function);
  run_hosts(job, [&](Communicator& comm) {
    DeviceUser user;
    body(comm, user);
  });
  return fake()->calls(function) - before;
}

// What a rank got directly is flushed once for each part of a call.
std::uint64_t flushes_in(const HostJob& job,
                         const std::function<void(Communicator&, DeviceUser&)>& body) {
  return calls_in("cuFlushGPUDirectRDMAWrites", job, body);
}

void run_one(Communicator& comm, CollectiveCase c, DeviceUser& user) {
  c.options.stream = user.stream();
  const std::string wrong = run_case(comm, c, &user.memory());
  require(wrong.empty(), describe(c) + ": " + wrong);
}

class DeviceDirectCollective : public testing::Test {
 protected:
  void SetUp() override {
    if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which counts";
  }
};

struct Moving {
  Collective collective;
  std::uint64_t receivers;  ///< of three ranks
};
constexpr Moving kMoving[]{{Collective::kBroadcast, 2},
                           {Collective::kAllGather, 3},
                           {Collective::kGather, 1},
                           {Collective::kScatter, 3},
                           {Collective::kAllToAll, 3}};

TEST_F(DeviceDirectCollective, BlocksGoWhereTheyLie) {
  for (const Moving& moving : kMoving) {
    for (const bool in_place : {false, true}) {
      CollectiveCase c{moving.collective, DataType::kInt16, OpKind::kSum, kBlock};
      c.root = 1;
      c.in_place = in_place;
      c.skew = 2;
      const std::uint64_t flushes =
          flushes_in(kAlone, [&](Communicator& comm, DeviceUser& user) { run_one(comm, c, user); });
      EXPECT_EQ(flushes, moving.receivers) << describe(c);
    }
  }
}

// Of their blocks only the one from rank 0 to rank 0 is long.
TEST_F(DeviceDirectCollective, UnevenBlocksAreRightDirectOrNot) {
  run_hosts(kAlone, [](Communicator& comm) {
    DeviceUser user;
    for (const Collective collective : {Collective::kAllGatherV, Collective::kGatherV,
                                        Collective::kScatterV, Collective::kAllToAllV}) {
      CollectiveCase c{collective, DataType::kInt16, OpKind::kSum, 300'000};
      c.displaced = true;
      run_one(comm, c, user);
    }
  });
}

// Blocks in reverse order, a number of the caller's between them.
TEST_F(DeviceDirectCollective, BlocksApartGoWhereTheyLieAndGapsStay) {
  const auto block = [](Rank from, Rank to) {
    return kBlock + 10 * static_cast<std::size_t>(from) + static_cast<std::size_t>(to);
  };
  const auto number = [](Rank from, Rank to) { return static_cast<std::int16_t>(10 * from + to); };
  const std::uint64_t flushes = flushes_in(kAlone, [&](Communicator& comm, DeviceUser& user) {
    std::vector<std::size_t> in_counts(3), in_at(3), out_counts(3), out_at(3);
    std::vector<std::int16_t> in, expected;
    for (const Rank peer : {2, 1, 0}) {
      const auto i = static_cast<std::size_t>(peer);
      in_at[i] = in.size();
      in_counts[i] = block(comm.rank(), peer);
      in.resize(in.size() + in_counts[i], number(comm.rank(), peer));
      out_at[i] = expected.size();
      out_counts[i] = block(peer, comm.rank());
      expected.resize(expected.size() + out_counts[i], number(peer, comm.rank()));
      expected.push_back(-7);
    }
    std::int16_t* const from = user.make(in);
    std::int16_t* const to = user.make(std::vector<std::int16_t>(expected.size(), -7));
    comm.group(std::vector<Call>{{.collective = Collective::kAllToAllV,
                                  .in = from,
                                  .out = to,
                                  .type = DataType::kInt16,
                                  .in_counts = in_counts,
                                  .in_displacements = in_at,
                                  .out_counts = out_counts,
                                  .out_displacements = out_at,
                                  .options = {.stream = user.stream()}}});
    user.finish();
    require(user.look(to, expected.size()) == expected, "blocks or gaps are wrong");
  });
  EXPECT_EQ(flushes, 3u);
}

TEST_F(DeviceDirectCollective, LongBroadcastsGoInParts) {
  const CollectiveCase c{Collective::kBroadcast, DataType::kInt32, OpKind::kSum, 2'500'000};
  const std::uint64_t flushes =
      flushes_in(kAlone, [&](Communicator& comm, DeviceUser& user) { run_one(comm, c, user); });
  EXPECT_EQ(flushes, 2u * 3);
}

TEST_F(DeviceDirectCollective, SmallBlocksAndReductionsAreStaged) {
  EXPECT_EQ(
      flushes_in(kAlone,
                 [&](Communicator& comm, DeviceUser& user) {
                   run_one(comm, {Collective::kAllGather, DataType::kInt16, {}, 1000}, user);
                   run_one(comm, {Collective::kAllToAllV, DataType::kInt16, {}, 1000}, user);
                   run_one(comm, {Collective::kAllReduce, DataType::kInt16, {}, kBlock}, user);
                   run_one(comm, {Collective::kReduceScatter, DataType::kInt16, {}, kBlock}, user);
                   comm.barrier();
                 }),
      0u);
}

TEST_F(DeviceDirectCollective, TransportsThatCannotStageAsEver) {
  HostJob over_tcp = kAlone;
  over_tcp.transport = "tcp";
  const CollectiveCase c{Collective::kAllGather, DataType::kInt16, OpKind::kSum, kBlock};
  EXPECT_EQ(
      flushes_in(over_tcp, [&](Communicator& comm, DeviceUser& user) { run_one(comm, c, user); }),
      0u);
}

// Rank 1 is in the same calls with host memory.
TEST_F(DeviceDirectCollective, EachRankIsDirectForItself) {
  const std::uint64_t flushes = flushes_in(kAlone, [&](Communicator& comm, DeviceUser& user) {
    for (const Moving& moving : kMoving) {
      const CollectiveCase c{moving.collective, DataType::kInt16, OpKind::kSum, kBlock};
      if (comm.rank() != 1) {
        run_one(comm, c, user);
      } else {
        const std::string wrong = run_case(comm, c);
        require(wrong.empty(), describe(c) + ": " + wrong);
      }
    }
  });
  // Rank 1 is one of the receivers, but for the gather, whose root is rank 0.
  EXPECT_EQ(flushes, 1u + 2 + 1 + 2 + 2);
}

// A broadcast's receiver with work before the call does not wait for it, and gets the right bytes.
TEST_F(DeviceDirectCollective, ReceiversThatHaveNotComeToTheCallAreStaged) {
  run_hosts(kAlone, [](Communicator& comm) {
    DeviceUser user;
    const CallOptions options{.stream = user.stream()};
    std::int32_t* const first = user.make(std::vector<std::int32_t>(kBlock, comm.rank()));
    std::int32_t* const second = user.make(std::vector<std::int32_t>(kBlock, 10 + comm.rank()));
    for (int round = 0; round < 3; ++round) {
      for (Rank root = 0; root < comm.size(); ++root) {
        comm.broadcast(first, kBlock, DataType::kInt32, root, options);
        comm.broadcast(second, kBlock, DataType::kInt32, root, options);
      }
    }
    user.finish();
    require(user.look(first, kBlock) == std::vector<std::int32_t>(kBlock, 0), "the first");
    require(user.look(second, kBlock) == std::vector<std::int32_t>(kBlock, 10), "the second");
  });
}

TEST_F(DeviceDirectCollective, AFailedCopyIsAFailureOfItsRank) {
  std::vector<std::string> failures(3);
  try {
    spawn_hosts(kAlone, [&](Communicator& comm) {
      DeviceUser user;
      std::int16_t* const in = user.make(std::vector<std::int16_t>(kBlock, 1));
      std::int16_t* const out = user.make(std::vector<std::int16_t>(3 * kBlock));
      comm.barrier();
      if (comm.rank() == 0) fake()->fail("cuMemcpyAsync", 1, CUDA_ERROR_UNKNOWN);
      comm.barrier();
      failures[static_cast<std::size_t>(comm.rank())] = failure_of([&] {
        comm.all_gather(in, out, kBlock, DataType::kInt16, {.stream = user.stream()});
        user.finish();
        comm.barrier();
      });
    });
  } catch (const std::exception& failure) {
    failures[0] += failure.what();
  }
  EXPECT_THAT(failures[0] + failures[1] + failures[2], HasSubstr("to or from device 0"));
}

}  // namespace
}  // namespace unisono::test
