// What a training step moves, counted by the runtime: what the theory says, not a byte more.
#include <gmock/gmock.h>

#include "tests/train/ddp/ddp_world.h"
#include "unisono/train/zero.h"

namespace unisono::test {
namespace {

using train::DdpOptions;
using train::DistributedDataParallel;

std::uint64_t calls(const TrafficReport& report, Collective collective) {
  return report.calls[static_cast<std::size_t>(collective)];
}
Traffic moved(const TrafficReport& report, Collective collective) {
  return report.by_collective[static_cast<std::size_t>(collective)];
}
std::uint64_t all_calls(const TrafficReport& report) {
  std::uint64_t total = 0;
  for (const std::uint64_t count : report.calls) total += count;
  return total;
}

// What can be compared with a formula: the ring, nothing sought, nothing broadcast per step.
DdpOptions plain_options() {
  return {.bucket_bytes_max = 4800,
          .first_bucket_bytes = 2400,
          .static_graph = true,
          .broadcast_buffers = false,
          .reduction = {.algorithm = "ring"}};
}

struct World {
  int ranks;
  const char* transport;
};
class DdpTraffic : public testing::TestWithParam<World> {
 protected:
  void run(const std::function<void(Communicator&)>& body) const {
    run_ranks(GetParam().ranks, GetParam().transport, body);
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, DdpTraffic,
                         testing::Values(World{2, "shm"}, World{3, "shm"}, World{4, "shm"},
                                         World{3, "tcp"}),
                         [](const auto& info) {
                           return std::string(info.param.transport) + "_" +
                                  std::to_string(info.param.ranks);
                         });

TEST_P(DdpTraffic, EachBucketIsTwoTimesThePeersMessagesOfItsShare) {
  run([](Communicator& comm) {
    // Counts that 2, 3 and 4 divide: 4 buckets of 600, 1200, 1200 and 240 floats.
    ToyModel model({.counts = {240, 1200, 600, 600, 600}});
    DistributedDataParallel ddp(model, comm, plain_options());
    train_with(ddp, 2, 1e-6F);  // the buckets have their final form afterwards
    const TrafficReport earlier = comm.traffic();
    const Traffic before = moved(earlier, Collective::kAllReduce);
    const auto buckets = static_cast<std::uint64_t>(ddp.buckets().size());
    EXPECT_EQ(buckets, 4u);
    constexpr std::uint64_t kSteps = 3;
    train_with(ddp, kSteps, 1e-6F);
    const TrafficReport report = comm.traffic();
    const Traffic after = moved(report, Collective::kAllReduce);
    const auto ranks = static_cast<std::uint64_t>(comm.size());
    const std::uint64_t messages = kSteps * buckets * 2 * (ranks - 1);
    const std::uint64_t bytes =
        kSteps * 2 * (ranks - 1) * model.gradients().values().size() * sizeof(float) / ranks;
    EXPECT_EQ(after.messages_sent - before.messages_sent, messages);
    EXPECT_EQ(after.messages_received - before.messages_received, messages);
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, bytes);
    EXPECT_EQ(after.bytes_received - before.bytes_received, bytes);
    EXPECT_EQ(all_calls(report) - all_calls(earlier), kSteps * buckets)
        << "something else was called";
    for (Rank peer = 0; peer < comm.size(); ++peer) {
      const auto i = static_cast<std::size_t>(peer);
      const bool is_next = peer == (comm.rank() + 1) % comm.size();
      EXPECT_EQ(report.by_peer[i].bytes_sent - earlier.by_peer[i].bytes_sent, is_next ? bytes : 0);
    }
  });
}

TEST_P(DdpTraffic, OfUnevenSharesAddsUpToTheWholeOverAllRanks) {
  run([](Communicator& comm) {
    ToyModel model({.counts = {1, 1201, 599, 7}});
    DistributedDataParallel ddp(model, comm, plain_options());
    train_with(ddp, 2, 1e-6F);
    const std::uint64_t before = moved(comm.traffic(), Collective::kAllReduce).bytes_sent;
    train_with(ddp, 1, 1e-6F);
    std::uint64_t sent = moved(comm.traffic(), Collective::kAllReduce).bytes_sent - before;
    ddp.control().all_reduce(std::span(&sent, 1), ops::sum);
    const auto peers = static_cast<std::uint64_t>(comm.size() - 1);
    EXPECT_EQ(sent, 2 * peers * model.gradients().values().size() * sizeof(float));
  });
}

TEST_P(DdpTraffic, EverythingElseIsCountedApart) {
  run([](Communicator& comm) {
    ToyModel model;
    DistributedDataParallel ddp(
        model, comm, {.find_unused_parameters = true, .reduction = {.algorithm = "ring"}});
    const TrafficReport first = ddp.control().traffic();
    EXPECT_GE(calls(first, Collective::kBroadcast), 2u) << "parameters and buffers, once";
    const TrafficReport own = comm.traffic();  // making the duplicate took some
    EXPECT_EQ(calls(own, Collective::kAllReduce), 0u);
    train_with(ddp, 3, kExactRate);
    const TrafficReport then = ddp.control().traffic();
    EXPECT_EQ(calls(then, Collective::kBroadcast) - calls(first, Collective::kBroadcast), 3u)
        << "buffers, once a step";
    EXPECT_EQ(calls(then, Collective::kAllReduce), 6u) << "bitmap and loss, once a step each";
    EXPECT_EQ(calls(comm.traffic(), Collective::kAllReduce), 3 * ddp.buckets().size());
    EXPECT_EQ(all_calls(comm.traffic()) - all_calls(own), 3 * ddp.buckets().size());
  });
}

TEST_P(DdpTraffic, OfZeroIsOneReduceScatterAndOneAllGatherOfTheBytesOfAnAllReduce) {
  run([](Communicator& comm) {
    ToyModel model({.counts = {1200}});
    train::ZeroOptimizer zero(
        model, comm, [](std::size_t count) { return train::make_sgd(count); },
        {.reduction = {.algorithm = "ring"}, .gather = {.algorithm = "ring"}});
    const TrafficReport earlier = comm.traffic();
    for (std::uint64_t step = 0; step < 2; ++step) {
      zero.step(toy_batch(step, 0, 4), squared_loss, 1e-6F);
    }
    const TrafficReport report = comm.traffic();
    const auto ranks = static_cast<std::uint64_t>(comm.size());
    for (const Collective collective : {Collective::kReduceScatter, Collective::kAllGather}) {
      const Traffic before = moved(earlier, collective), after = moved(report, collective);
      EXPECT_EQ(calls(report, collective) - calls(earlier, collective), 2u);
      EXPECT_EQ(after.messages_sent - before.messages_sent, 2 * (ranks - 1));
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, 2 * (ranks - 1) * 4800 / ranks);
    }
    EXPECT_EQ(all_calls(report) - all_calls(earlier), 4u);
  });
}

}  // namespace
}  // namespace unisono::test
