// The formulas against their sums, against the plans, and against figures by hand.
#include "tools/train/traffic_formulas.h"

#include <gmock/gmock.h>

#include "algorithms/selection.h"
#include "plan/chunk_layout.h"
#include "tests/train/compare/total_calls.h"
#include "tools/train/compare_sums.h"
#include "unisono/train/scatter_chunks.h"

namespace unisono::train::comparison {
namespace {

constexpr ModelSize kSize{
    .parameters = 1001, .buffers = 14, .inputs = 30, .outputs = 7, .targets = 2};

BatchCut even_cut(std::size_t samples, std::size_t devices, std::size_t output = 0) {
  return {even_chunks(samples, devices), devices, output};
}

std::uint64_t bytes_received(const std::vector<TrafficReport>& reports) {
  std::uint64_t sum = 0;
  for (const TrafficReport& report : reports) sum += total(report).bytes_received;
  return sum;
}

TEST(TrafficFormulas, OfDpAddUpToTheSumOfItsPartsWhereChunksAreEven) {
  for (std::uint64_t n = 1; n <= 8; ++n) {
    const std::uint64_t samples = 840;
    for (std::uint64_t output = 0; output < n; ++output) {
      const auto dp = dp_traffic(kSize, even_cut(samples, n, output));
      EXPECT_EQ(bytes_sent(dp), 4 * even_dp_elements(kSize, samples, n)) << n << " " << output;
      const auto criterion = dp_criterion_traffic(kSize, even_cut(samples, n, output));
      EXPECT_EQ(bytes_sent(criterion), 4 * even_dp_criterion_elements(kSize, samples, n))
          << n << " " << output;
    }
  }
}

TEST(TrafficFormulas, OfTwoDevicesAreWhatAHandCountGives) {
  const ModelSize size{.parameters = 100, .buffers = 6, .inputs = 10, .outputs = 3, .targets = 1};
  const auto dp = dp_traffic(size, even_cut(8, 2));
  // 4 samples of 10 inputs, 106 values of the model; 4 times 3 outputs here and their gradients
  // there, 100 gradients here.
  EXPECT_EQ(total(dp[0]).bytes_sent, 4u * (40 + 106 + 12));
  EXPECT_EQ(total(dp[0]).bytes_received, 4u * (12 + 100));
  EXPECT_EQ(total(dp[0]).messages_sent, 4u);
  EXPECT_EQ(total(dp[1]).messages_sent, 2u);
  EXPECT_EQ(total_calls(dp[1]), 6u);
  EXPECT_EQ(even_dp_elements(size, 8, 2), 40u + 106 + 12 + 12 + 100);
}

TEST(TrafficFormulas, OfUnevenChunksCountWhatEachDeviceReallyHas) {
  const auto dp = dp_traffic(kSize, even_cut(5, 4));  // 2, 2, 1: the fourth has nothing to do
  EXPECT_EQ(bytes_sent(dp, Collective::kScatterV), 4u * 3 * (30 + 7));
  EXPECT_EQ(bytes_sent(dp, Collective::kBroadcast), 4u * 2 * (1001 + 14));
  EXPECT_EQ(total_calls(dp[3]), 0u);
}

TEST(TrafficFormulas, ReceiveWhatTheySend) {
  for (int n = 1; n <= 7; ++n) {
    const auto devices = static_cast<std::size_t>(n);
    const std::vector<std::uint64_t> buckets{1, 5, 1000, 30011};
    for (const auto& reports : {dp_traffic(kSize, even_cut(23, devices, devices - 1)),
                                dp_criterion_traffic(kSize, even_cut(23, devices)),
                                ddp_traffic(buckets, n), zero_traffic(30011, n)}) {
      EXPECT_EQ(bytes_received(reports), bytes_sent(reports)) << n;
    }
  }
}

TEST(TrafficFormulas, OfDdpAreTwoTimesThePeersMessagesOfOneNth) {
  const std::vector<std::uint64_t> bucket{1200};
  for (int n = 2; n <= 6; ++n) {
    const auto ranks = static_cast<std::uint64_t>(n);
    for (const TrafficReport& report : ddp_traffic(bucket, n)) {
      EXPECT_EQ(total(report).messages_sent, 2 * (ranks - 1));
      EXPECT_EQ(total(report).bytes_sent, 2 * (ranks - 1) * 1200 * 4 / ranks);
      EXPECT_EQ(total(report).bytes_sent, 4 * even_ddp_elements(1200, ranks));
    }
  }
  const TrafficReport of_three = ddp_traffic(bucket, 3).front();
  EXPECT_EQ(total(of_three).messages_sent, 4u) << "two per phase";
  EXPECT_EQ(total(of_three).bytes_sent, 4u * 4 * 400) << "a third of the gradient each";
  EXPECT_EQ(of_three.by_peer[1].bytes_sent, 4u * 4 * 400) << "to the next rank alone";
}

TEST(TrafficFormulas, OfZeroAreThoseOfOneAllReduceWhereTheRanksDivide) {
  const std::vector<std::uint64_t> whole{1200};
  for (int n = 2; n <= 6; ++n) {
    EXPECT_EQ(bytes_sent(zero_traffic(1200, n)), bytes_sent(ddp_traffic(whole, n)));
  }
  EXPECT_EQ(total(zero_traffic(10, 4)[0]).bytes_sent, 2u * 3 * 3 * 4) << "slices of 3, padded";
}

/// What the plan of a ring sends and receives, by its own layout.
struct Planned {
  Collective collective;
  std::uint64_t count;  ///< all-reduce: of the vector; else: of a rank's block
  int ranks;
};

TrafficReport planned_traffic(const Planned& call, Rank rank) {
  const auto n = static_cast<std::uint64_t>(call.ranks);
  const bool is_vector = call.collective == Collective::kAllReduce;
  algorithms::SelectionRequest request;
  request.collective = call.collective;
  request.ranks = call.ranks;
  request.bytes = call.count * (is_vector ? 1 : n) * sizeof(float);
  const auto choice = algorithms::SelectionTable::defaults().choose(request, "ring");
  const plan::Plan plan = choice->algorithm->build({.collective = call.collective,
                                                    .ranks = call.ranks,
                                                    .rank = rank,
                                                    .chunks = choice->chunks,
                                                    .in_place = true});
  const auto layout = [&](int blocks) {
    return plan::BufferLayout::contiguous(call.count * (!is_vector && blocks > 1 ? n : 1),
                                          sizeof(float), blocks, choice->chunks);
  };
  const auto bound =
      plan::ChunkLayout::bind(plan, layout(plan.input_blocks), layout(plan.output_blocks));
  TrafficReport report;
  report.by_peer.resize(n);
  report.calls[static_cast<std::size_t>(call.collective)] = 1;
  for (const plan::Step& step : plan.steps) {
    const bool sends = step.kind == plan::StepKind::kSend;
    if (step.peer < 0) continue;
    const std::size_t bytes = bound.range(sends ? step.source : step.target).bytes;
    if (bytes == 0) continue;
    for (Traffic* each : {&report.by_collective[static_cast<std::size_t>(call.collective)],
                          &report.by_peer[static_cast<std::size_t>(step.peer)]}) {
      ++(sends ? each->messages_sent : each->messages_received);
      (sends ? each->bytes_sent : each->bytes_received) += bytes;
    }
  }
  return report;
}

TEST(TrafficFormulas, OfRingsAreThePlansOwnByteByByteAlsoOfUnevenDivision) {
  // Below a rank's element, uneven, and large enough to be cut into pieces.
  for (const std::uint64_t count : {1u, 2u, 5u, 7u, 1000u, 1001u, 203530u, 1605642u, 5000003u}) {
    for (int ranks = 2; ranks <= 7; ++ranks) {
      const auto ddp = ddp_traffic(std::vector<std::uint64_t>{count}, ranks);
      const auto zero = zero_traffic(count, ranks);
      const auto n = static_cast<std::uint64_t>(ranks);
      const std::uint64_t slice = (count + n - 1) / n;
      for (Rank rank = 0; rank < ranks; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        EXPECT_TRUE(
            are_equal(ddp[i], planned_traffic({Collective::kAllReduce, count, ranks}, rank)))
            << count << " elements on " << ranks << " ranks, rank " << rank;
        const TrafficReport both =
            planned_traffic({Collective::kReduceScatter, slice, ranks}, rank) +
            planned_traffic({Collective::kAllGather, slice, ranks}, rank);
        EXPECT_TRUE(are_equal(zero[i], both))
            << count << " elements on " << ranks << " ranks, rank " << rank;
      }
    }
  }
}

TEST(TrafficFormulas, OfOutputsAreTheTextbooks) {
  const OutputMemory memory = output_memory(40000u * 250u, 32);
  EXPECT_EQ(memory.outputs, 1'280'000'000u);
  EXPECT_EQ(memory.with_gradient, 2'560'000'000u);
}

TEST(TrafficSums, TellReportsApartByOnePeersByte) {
  TrafficReport a, b;
  a.by_peer.resize(2);
  b.by_peer.resize(3);
  EXPECT_TRUE(are_equal(a, b)) << "peers that nothing went to";
  b.by_peer[2].bytes_sent = 1;
  EXPECT_FALSE(are_equal(a, b));
  EXPECT_FALSE(are_equal(b, a));
  EXPECT_TRUE(are_equal(a + b - b, a));
  EXPECT_EQ(times(b, 3).by_peer[2].bytes_sent, 3u);
}

}  // namespace
}  // namespace unisono::train::comparison
