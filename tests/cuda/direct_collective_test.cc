// GPUDirect in collectives that only move blocks: ranks alone on their hosts, over the reference
// transport. The fake driver ends whoever touches device memory as if it were the host's.
#include <gmock/gmock.h>

#include <barrier>
#include <optional>
#include <thread>
#include <utility>

#include "tests/cuda/device_hosts.h"
#include "tests/cuda/odd_world.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

const HostJob kAlone{.hosts = {0, 1, 2}, .transport = "loopback"};
constexpr std::size_t kBlock = 70'001;  // of int16: more than 64 KiB

/// How often what network devices wrote was flushed while the job ran: once for each rank that got
/// anything directly, and each part of a call.
std::uint64_t flushes_in(const HostJob& job,
                         const std::function<void(Communicator&, DeviceUser&)>& body) {
  constexpr const char* kFlush = "cuFlushGPUDirectRDMAWrites";
  const std::uint64_t before = fake()->calls(kFlush);
  run_device_hosts(job, [&](Communicator& comm) {
    DeviceUser user;
    body(comm, user);
  });
  return fake()->calls(kFlush) - before;
}

class DeviceDirectCollective : public testing::Test {
 protected:
  void SetUp() override {
    if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which counts";
  }
};

// Of three ranks. An exchange in place passes through scratch memory of the host, and is staged.
struct Moving {
  Collective collective;
  std::uint64_t receivers;
  std::uint64_t receivers_in_place;
};
constexpr Moving kMoving[]{{Collective::kBroadcast, 2, 2},
                           {Collective::kAllGather, 3, 3},
                           {Collective::kGather, 1, 1},
                           {Collective::kScatter, 3, 3},
                           {Collective::kAllToAll, 3, 0}};

TEST_F(DeviceDirectCollective, BlocksGoWhereTheyLie) {
  for (const Moving& moving : kMoving) {
    for (const bool in_place : {false, true}) {
      CollectiveCase c{moving.collective, DataType::kInt16, OpKind::kSum, kBlock};
      c.root = 1;
      c.in_place = in_place;
      c.skew = 2;
      const std::uint64_t flushes =
          flushes_in(kAlone, [&](Communicator& comm, DeviceUser& user) { run_one(comm, c, user); });
      EXPECT_EQ(flushes, in_place ? moving.receivers_in_place : moving.receivers) << describe(c);
    }
  }
}

// Only the block from rank 0 to rank 0 is long: the mean is for ranks that have several, and rank 1
// and 2 have one short one where rank 0 is the root.
TEST_F(DeviceDirectCollective, OfUnevenBlocksTheMeanCounts) {
  constexpr std::pair<Collective, std::uint64_t> kDirect[]{{Collective::kAllGatherV, 3},
                                                           {Collective::kGatherV, 1},
                                                           {Collective::kScatterV, 1},
                                                           {Collective::kAllToAllV, 1}};
  for (const auto& [collective, receivers] : kDirect) {
    CollectiveCase c{collective, DataType::kInt16, OpKind::kSum, 300'000};
    c.displaced = true;
    const std::uint64_t flushes =
        flushes_in(kAlone, [&](Communicator& comm, DeviceUser& user) { run_one(comm, c, user); });
    EXPECT_EQ(flushes, receivers) << describe(c);
  }
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

// Were they to wait for their streams, the root would wait for them.
TEST_F(DeviceDirectCollective, ReceiversThatHaveNotComeToTheCallAreStaged) {
  for (const Collective collective : {Collective::kBroadcast, Collective::kScatter}) {
    std::barrier<> root_is_through(3);
    const std::uint64_t flushes = flushes_in(kAlone, [&](Communicator& comm, DeviceUser& user) {
      const bool is_root = comm.rank() == 0;
      const std::size_t all = collective == Collective::kScatter && is_root ? 3 * kBlock : kBlock;
      std::int16_t* const in = user.make(std::vector<std::int16_t>(is_root ? all : 0, 7));
      std::int16_t* const out = user.make(std::vector<std::int16_t>(kBlock, 1));
      user.finish();
      const bool is_broadcast = collective == Collective::kBroadcast;
      std::int16_t* const result = is_broadcast && is_root ? in : out;
      std::optional<HeldStream> held;
      std::thread release;
      if (!is_root) {
        held.emplace(user.stream());
        release = std::thread([&] {
          root_is_through.arrive_and_wait();
          held.reset();
        });
        const auto address = reinterpret_cast<CUdeviceptr>(out);
        driver()->MemcpyAsync(address, address + sizeof *out, sizeof *out, user.stream());
      }
      comm.group(std::vector<Call>{{.collective = collective,
                                    .in = is_broadcast ? result : in,
                                    .out = result,
                                    .count = kBlock,
                                    .type = DataType::kInt16,
                                    .options = {.stream = user.stream()}}});
      user.finish();
      if (is_root) root_is_through.arrive_and_wait();
      if (release.joinable()) release.join();
      require(user.look(result, kBlock) == std::vector<std::int16_t>(kBlock, 7), "not the root's");
    });
    EXPECT_EQ(flushes, collective == Collective::kScatter ? 1u : 0u);  // the root's own block
  }
}

TEST_F(DeviceDirectCollective, AnAbortedCallLeavesTheBuffersAlone) {
  run_device_hosts({.hosts = {0, 1, 2}, .transport = "loopback"}, [](Communicator& comm) {
    Communicator doomed = comm.duplicate();
    {
      DeviceUser user;
      std::int16_t* const in = user.make(std::vector<std::int16_t>(kBlock, 1));
      std::int16_t* const out = user.make(std::vector<std::int16_t>(3 * kBlock));
      if (comm.rank() == 2) {
        comm.barrier();
        doomed.abort("enough");
      } else {
        std::string failed;
        std::thread caller([&] {
          failed = failure_of([&] {
            doomed.all_gather(in, out, kBlock, DataType::kInt16, {.stream = user.stream()});
          });
        });
        comm.barrier();
        caller.join();
        require(failed.find("enough") != std::string::npos, "no abort of the call: " + failed);
      }
      user.finish();
    }  // the memory is gone, and whoever touches it ends the program
    comm.barrier();
    require(failure_of([&] { doomed.barrier(); }).find("enough") != std::string::npos, "no abort");
  });
}

TEST_F(DeviceDirectCollective, AnAlgorithmThatNobodyKnowsConcernsTheCallAlone) {
  run_device_hosts(kAlone, [](Communicator& comm) {
    DeviceUser user;
    std::int16_t* const in = user.make(std::vector<std::int16_t>(kBlock, 1));
    std::int16_t* const out = user.make(std::vector<std::int16_t>(3 * kBlock));
    const std::string failure = failure_of(
        [&] { comm.all_gather(in, out, kBlock, DataType::kInt16, {.algorithm = "rnig"}); });
    require(failure.find("rnig") != std::string::npos, "accepted: " + failure);
    comm.all_gather(in, out, kBlock, DataType::kInt16);
  });
}

// Of this rank's own block, which the plan copies.
TEST_F(DeviceDirectCollective, AFailedCopyIsAFailureOfItsRank) {
  std::vector<std::string> failures(3);
  EXPECT_THROW(spawn_device_hosts(
                   kAlone,
                   [&](Communicator& comm) {
                     DeviceUser user;
                     std::int16_t* const in = user.make(std::vector<std::int16_t>(kBlock, 1));
                     std::int16_t* const out = user.make(std::vector<std::int16_t>(3 * kBlock));
                     comm.barrier();
                     if (comm.rank() == 0) fake()->fail("cuMemcpyAsync", 1, CUDA_ERROR_UNKNOWN);
                     comm.barrier();
                     failures[static_cast<std::size_t>(comm.rank())] = failure_of([&] {
                       comm.all_gather(in, out, kBlock, DataType::kInt16,
                                       {.stream = user.stream()});
                       user.finish();
                       comm.barrier();
                     });
                     if (!comm.status().ok()) throw Error(comm.status());
                   }),
               Error);
  for (const std::string& failure : failures) {
    EXPECT_THAT(failure, HasSubstr("bytes of a message or block to or from device 0"));
  }
}

}  // namespace
}  // namespace unisono::test
