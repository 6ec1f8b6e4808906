// Communicator::traffic(): what one rank says it sent another says it received, and the totals are
// those of the algorithm.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

constexpr int kRanks = 4;
constexpr std::size_t kSmall = 24;       // elements; divisible by the ranks
constexpr std::size_t kLarge = 120'000;  // in chunks over every path

class TrafficReports : public testing::TestWithParam<const char*> {};

const Traffic& of(const TrafficReport& report, Collective collective) {
  return report.by_collective[static_cast<std::size_t>(collective)];
}

// What `call` adds on this rank.
template <typename Function>
TrafficReport added_by(Communicator& comm, Function&& call) {
  const TrafficReport before = comm.traffic();
  call();
  TrafficReport after = comm.traffic();
  for (std::size_t peer = 0; peer < after.by_peer.size(); ++peer) {
    after.by_peer[peer].bytes_sent -= before.by_peer[peer].bytes_sent;
    after.by_peer[peer].bytes_received -= before.by_peer[peer].bytes_received;
    after.by_peer[peer].messages_sent -= before.by_peer[peer].messages_sent;
    after.by_peer[peer].messages_received -= before.by_peer[peer].messages_received;
  }
  return after;
}

// Bytes from `row` to `column`, as the sender and as the receiver count them.
struct Matrices {
  std::vector<std::uint64_t> sent, received;
};

Matrices exchanged(Communicator& comm, const TrafficReport& mine) {
  const auto size = static_cast<std::size_t>(comm.size());
  std::vector<std::uint64_t> sent, received;
  for (const Traffic& peer : mine.by_peer) {
    sent.push_back(peer.bytes_sent);
    received.push_back(peer.bytes_received);
  }
  Matrices all{std::vector<std::uint64_t>(size * size), std::vector<std::uint64_t>(size * size)};
  comm.all_gather(sent, all.sent);
  comm.all_gather(received, all.received);
  return all;
}

void expect_sent_is_received(Communicator& comm, const TrafficReport& mine, const char* what) {
  const Matrices all = exchanged(comm, mine);
  const auto size = static_cast<std::size_t>(comm.size());
  std::uint64_t moved = 0;
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t to = 0; to < size; ++to) {
      EXPECT_EQ(all.sent[from * size + to], all.received[to * size + from])
          << what << ": from rank " << from << " to rank " << to;
      moved += all.sent[from * size + to];
    }
  }
  EXPECT_GT(moved, 0U) << what;
}

TEST_P(TrafficReports, WhatOneRankSendsAnotherReceives) {
  run_ranks(kRanks, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {kSmall, kLarge}) {
      const std::size_t blocks = count * kRanks;
      std::vector<std::int32_t> in(blocks, 1), out(blocks);
      const std::vector<std::size_t> counts{count, 0, count / 2, 3};
      const std::vector<std::size_t> own(kRanks, counts[static_cast<std::size_t>(comm.rank())]);
      const auto check = [&](const char* what, auto&& call) {
        expect_sent_is_received(comm, added_by(comm, call), what);
      };
      const auto data = [](std::vector<std::int32_t>& v) { return v.data(); };
      const DataType type = DataType::kInt32;
      check("all_reduce", [&] { comm.all_reduce(in.data(), out.data(), count, type, ops::sum); });
      check("reduce", [&] { comm.reduce(in.data(), out.data(), count, type, ops::sum, 1); });
      check("broadcast", [&] { comm.broadcast(in.data(), count, type, 2); });
      check("all_gather", [&] { comm.all_gather(in.data(), out.data(), count, type); });
      check("all_gather_v", [&] { comm.all_gather_v(in.data(), data(out), counts, {}, type); });
      check("reduce_scatter",
            [&] { comm.reduce_scatter(in.data(), out.data(), count, type, ops::sum); });
      check("reduce_scatter_v",
            [&] { comm.reduce_scatter_v(in.data(), out.data(), counts, type, ops::sum); });
      check("gather", [&] { comm.gather(in.data(), out.data(), count, type, 3); });
      check("gather_v", [&] { comm.gather_v(in.data(), own[0], out.data(), counts, {}, type, 0); });
      check("scatter", [&] { comm.scatter(in.data(), out.data(), count, type, 1); });
      check("scatter_v",
            [&] { comm.scatter_v(in.data(), counts, {}, out.data(), own[0], type, 0); });
      check("all_to_all", [&] { comm.all_to_all(in.data(), out.data(), count, type); });
      check("all_to_all_v",
            [&] { comm.all_to_all_v(in.data(), counts, {}, out.data(), own, {}, type); });
      check("scan", [&] { comm.scan(in.data(), out.data(), count, type, ops::sum); });
      check("exscan", [&] { comm.exscan(in.data(), out.data(), count, type, ops::sum); });
      check("send and receive", [&] {
        const Rank next = (comm.rank() + 1) % kRanks, previous = (comm.rank() + 3) % kRanks;
        Request send = comm.send_async(in.data(), count, type, next);
        comm.receive(out.data(), count, type, previous);
        send.wait();
      });
    }
  });
}

TEST_P(TrafficReports, TheRingSendsEachRankTwoTimesItsShareInTwoTimesThePeers) {
  run_ranks(kRanks, GetParam(), [](Communicator& comm) {
    std::vector<float> data(kLarge, 1.0F);
    comm.all_reduce(data, ops::sum, {.algorithm = "ring"});
    comm.all_reduce_async(data, ops::sum, {.algorithm = "ring"}).wait();
    const TrafficReport report = comm.traffic();
    EXPECT_EQ(report.calls[static_cast<std::size_t>(Collective::kAllReduce)], 2U);
    const Traffic& moved = of(report, Collective::kAllReduce);
    EXPECT_EQ(moved.messages_sent, 2U * 2U * (kRanks - 1));
    EXPECT_EQ(moved.bytes_sent, 2U * 2U * (kRanks - 1) * kLarge * sizeof(float) / kRanks);
    EXPECT_EQ(moved.bytes_received, moved.bytes_sent);
    const auto next = static_cast<std::size_t>((comm.rank() + 1) % kRanks);
    EXPECT_EQ(report.by_peer[next].bytes_sent, moved.bytes_sent);
  });
}

TEST_P(TrafficReports, AGatherSendsEveryBlockOnceAndOthersAreNotCharged) {
  run_ranks(kRanks, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {kSmall, kLarge}) {
      std::vector<float> mine(count, 1.0F), all(count * kRanks);
      const Traffic before = of(comm.traffic(), Collective::kGather);
      comm.gather(mine.data(), all.data(), count, DataType::kFloat32, 2, {.algorithm = "linear"});
      const TrafficReport report = comm.traffic();
      const Traffic& after = of(report, Collective::kGather);
      const std::uint64_t block = count * sizeof(float);
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, comm.rank() == 2 ? 0 : block);
      EXPECT_EQ(after.bytes_received - before.bytes_received,
                comm.rank() == 2 ? (kRanks - 1) * block : 0);
      EXPECT_EQ(of(report, Collective::kReduce).bytes_sent, 0U);
    }
  });
}

TEST_P(TrafficReports, BarriersMoveNoPayloadAndAreCounted) {
  run_ranks(kRanks, GetParam(), [](Communicator& comm) {
    for (int i = 0; i < 3; ++i) comm.barrier();
    const TrafficReport report = comm.traffic();
    EXPECT_EQ(report.calls[static_cast<std::size_t>(Collective::kBarrier)], 3U);
    EXPECT_EQ(of(report, Collective::kBarrier).bytes_sent, 0U);
  });
}

TEST_P(TrafficReports, AReceiveThatIsRefusedIsNotCounted) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> data(2);
    if (comm.rank() == 0) {
      comm.send(data, 1);
    } else {
      EXPECT_THROW(comm.receive(data.data(), 1, DataType::kFloat32, 0), Error);
    }
    const TrafficReport report = comm.traffic();
    EXPECT_EQ(report.calls[static_cast<std::size_t>(Collective::kSend)], comm.rank() == 0);
    EXPECT_EQ(report.calls[static_cast<std::size_t>(Collective::kReceive)], 0U);
    EXPECT_EQ(of(report, Collective::kReceive).bytes_received, 0U);
  });
}

TEST_P(TrafficReports, MakingASubsetIsNoCallOfIt) {
  run_ranks(kRanks, GetParam(), [](Communicator& comm) {
    const Communicator part = comm.subset(std::vector<Rank>{0, 2, 1, 3});
    const TrafficReport report = part.traffic();
    for (const std::uint64_t calls : report.calls) EXPECT_EQ(calls, 0U);
    for (const Traffic& peer : report.by_peer) EXPECT_EQ(peer.messages_sent, 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Transport, TrafficReports, testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(TrafficReport, OfAnEmptyCommunicatorIsEmpty) {
  EXPECT_TRUE(Communicator().traffic().by_peer.empty());
}

}  // namespace
}  // namespace unisono::test
