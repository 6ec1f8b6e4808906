// What each strategy really moves, counted by the runtime, is what the theory says: every call,
// message and byte of every device, by collective and by peer.
#include <gmock/gmock.h>

#include "tests/train/compare/total_calls.h"
#include "tests/train/compare/workloads.h"
#include "tools/train/compare_phases.h"
#include "tools/train/compare_run.h"
#include "tools/train/compare_sums.h"
#include "unisono/train/scatter_chunks.h"

namespace unisono::train::comparison {
namespace {

constexpr Span kSpan{.warm_up = 2, .steps = 3};

/// Names the first member that moved something else, and what.
void expect_as_predicted(const Cost& cost) {
  ASSERT_EQ(cost.members.size(), cost.predicted.size());
  for (std::size_t i = 0; i < cost.members.size(); ++i) {
    const Traffic measured = total(cost.members[i].traffic);
    const Traffic predicted = total(times(cost.predicted[i], cost.steps));
    const std::string who = cost.strategy + ", member " + std::to_string(i);
    EXPECT_EQ(measured.bytes_sent, predicted.bytes_sent) << who;
    EXPECT_EQ(measured.bytes_received, predicted.bytes_received) << who;
    EXPECT_EQ(measured.messages_sent, predicted.messages_sent) << who;
    EXPECT_EQ(measured.messages_received, predicted.messages_received) << who;
    EXPECT_EQ(total_calls(cost.members[i].traffic),
              total_calls(times(cost.predicted[i], cost.steps)))
        << who;
  }
  EXPECT_TRUE(is_as_predicted(cost)) << cost.strategy << ": by collective and by peer";
}

std::uint64_t calls(const TrafficReport& report, Collective collective) {
  return report.calls[static_cast<std::size_t>(collective)];
}

struct Kind {
  const char* name;
  Workload (*make)(std::size_t samples, int devices);
};

Workload default_mlp(std::size_t samples, int devices) {
  return mlp_workload({784, 256, 10}, samples, devices);
}

constexpr Kind kMlp{"mlp", default_mlp}, kCnn{"cnn", cnn_workload};

class OfDevices : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  Workload workload(std::size_t samples) const {
    return std::get<Kind>(GetParam()).make(samples, devices());
  }
  int devices() const { return std::get<int>(GetParam()); }
};
std::string device_test_name(const testing::TestParamInfo<std::tuple<Kind, int>>& info) {
  return std::get<Kind>(info.param).name + std::string("_") +
         std::to_string(std::get<int>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Models, OfDevices,
                         testing::Combine(testing::Values(kMlp, kCnn), testing::Values(2, 3, 4)),
                         device_test_name);

TEST_P(OfDevices, DpMovesWhatTheTheorySays) {
  const Workload even = workload(24);
  const Cost cost = run_devices(even, {.devices = devices()}, kSpan);
  expect_as_predicted(cost);
  EXPECT_EQ(bytes_sent(traffic_of(cost)),
            kSpan.steps * 4 *
                even_dp_elements(measure_size(even), 24, static_cast<std::uint64_t>(devices())));
  EXPECT_EQ(cost.threads_started, kSpan.steps * static_cast<std::uint64_t>(devices()));
}

TEST_P(OfDevices, AnotherOutputDeviceMovesAsMuchToOtherPlaces) {
  const Workload even = workload(24);
  const Cost first = run_devices(even, {.devices = devices()}, kSpan);
  const Cost second = run_devices(even, {.devices = devices(), .output = 1}, kSpan);
  expect_as_predicted(second);
  EXPECT_EQ(bytes_sent(traffic_of(second)), bytes_sent(traffic_of(first)));
  EXPECT_FALSE(are_equal(second.members[0].traffic, first.members[0].traffic));
  EXPECT_NEAR(first.loss, second.loss, 1e-6);
}

TEST_P(OfDevices, BalancedAndUnevenChunksMoveWhatTheirDevicesHave) {
  Workload uneven = workload(23);
  expect_as_predicted(run_devices(uneven, {.devices = devices()}, kSpan));
  for (const std::size_t first : {std::size_t{0}, uneven.first_batch}) {
    const Cost cost = run_devices(
        uneven, {.name = "dp-balanced", .devices = devices(), .first_batch = first}, kSpan);
    expect_as_predicted(cost);
    EXPECT_EQ(cost.members[0].samples,
              balanced_chunks(23, first, static_cast<std::size_t>(devices()))[0]);
  }
}

TEST_P(OfDevices, AParallelLossMovesTargetsAndScalarsInsteadOfOutputs) {
  const Workload even = workload(24);
  const Cost cost = run_devices(
      even, {.name = "dp-criterion", .devices = devices(), .parallel_loss = true}, kSpan);
  expect_as_predicted(cost);
  EXPECT_EQ(bytes_sent(traffic_of(cost)),
            kSpan.steps * 4 *
                even_dp_criterion_elements(measure_size(even), 24,
                                           static_cast<std::uint64_t>(devices())));
}

TEST_P(OfDevices, ASingleDeviceMovesNothing) {
  const Cost cost = run_devices(workload(24), {.name = "single", .devices = 1}, kSpan);
  expect_as_predicted(cost);
  EXPECT_EQ(total_calls(cost.members[0].traffic), 0u);
  EXPECT_EQ(cost.threads_started, 0u);
}

class OfRanks : public testing::TestWithParam<std::tuple<Kind, int, const char*>> {
 protected:
  Workload workload(std::size_t samples) const {
    Workload made = std::get<Kind>(GetParam()).make(samples, ranks());
    made.transport = std::get<const char*>(GetParam());
    return made;
  }
  int ranks() const { return std::get<int>(GetParam()); }
};
std::string rank_test_name(const testing::TestParamInfo<std::tuple<Kind, int, const char*>>& info) {
  return std::get<Kind>(info.param).name + std::string("_") +
         std::to_string(std::get<int>(info.param)) + "_" + std::get<const char*>(info.param);
}
INSTANTIATE_TEST_SUITE_P(Models, OfRanks,
                         testing::Combine(testing::Values(kMlp, kCnn), testing::Values(2, 3, 4),
                                          testing::Values("shm", "tcp")),
                         rank_test_name);

TEST_P(OfRanks, DdpMovesItsGradientsRoundTheRingAndNothingElse) {
  for (const std::size_t samples : {24u, 23u}) {
    const Cost cost = run_ranks(workload(samples), {}, kSpan);
    expect_as_predicted(cost);
    for (const Member& member : cost.members) {
      EXPECT_EQ(total_calls(member.traffic), calls(member.traffic, Collective::kAllReduce));
      EXPECT_EQ(total_calls(member.control), kSpan.steps) << "the loss' average alone";
      EXPECT_EQ(calls(member.control, Collective::kAllReduce), kSpan.steps);
    }
  }
}

TEST_P(OfRanks, ZeroMovesTheBytesOfOneAllReduce) {
  const Workload even = workload(24);
  const Cost cost = run_ranks(even, {.name = "zero1", .zero = true}, kSpan);
  expect_as_predicted(cost);
  for (const Member& member : cost.members) {
    EXPECT_EQ(calls(member.traffic, Collective::kReduceScatter), kSpan.steps);
    EXPECT_EQ(calls(member.traffic, Collective::kAllGather), kSpan.steps);
  }
}

TEST_P(OfRanks, LearnWhatASingleDeviceLearns) {
  const Workload even = workload(23);
  const Cost ddp = run_ranks(even, {}, kSpan);
  const Cost zero = run_ranks(even, {.zero = true}, kSpan);
  EXPECT_NEAR(ddp.loss, zero.loss, 1e-5);
  const Cost dp = run_devices(even, {.devices = ranks()}, kSpan);
  EXPECT_NEAR(ddp.loss, dp.loss, 1e-5) << "same chunks, same statistics of each";
}

TEST_P(OfRanks, ExtrasAreCountedApartFromTheGradients) {
  const Workload even = workload(24);
  const auto others = static_cast<std::uint64_t>(ranks() - 1);
  const bool has_buffers = measure_size(even).buffers > 0;
  const std::vector<Extra> extras = measure_extras(even, run_ranks(even, {}, kSpan));
  ASSERT_EQ(extras.size(), 5u);
  const auto find = [&](std::string_view name) {
    return *std::find_if(extras.begin(), extras.end(),
                         [&](const Extra& extra) { return extra.name == name; });
  };
  const Extra buffers = find("buffers"), bitmap = find("used bitmap"), bn = find("SyncBN"),
              once = find("first broadcast");
  for (const TrafficReport& rank : buffers.members) {
    EXPECT_EQ(calls(rank, Collective::kBroadcast), has_buffers ? 1u : 0u);
  }
  EXPECT_EQ(bytes_sent(buffers.members), others * buffers.payload) << "once to each other rank";
  for (const TrafficReport& rank : bitmap.members) {
    EXPECT_EQ(total_calls(rank), 1u);
    EXPECT_GE(total(rank).bytes_sent, bitmap.payload);
  }
  for (const TrafficReport& rank : bn.members) {
    EXPECT_EQ(calls(rank, Collective::kAllGather), has_buffers ? 2u : 0u) << "two batch norms";
    EXPECT_EQ(calls(rank, Collective::kAllReduce), has_buffers ? 2u : 0u);
  }
  EXPECT_EQ(bn.payload, has_buffers ? 4u * (2 * (2 * 3 + 2 * 5) + 2) : 0u) << "3 and 5 channels";
  EXPECT_GE(bytes_sent(once.members, Collective::kBroadcast), others * once.payload);
  EXPECT_TRUE(once.once);
}

TEST(RankTraffic, OfLargeBucketsIsCutIntoPiecesAsThePlanDoes) {
  // 6.4 MB of gradients: several buckets, blocks of more than 2 MiB among them.
  const Cost cost = run_ranks(mlp_workload({784, 2048, 10}, 4, 2), {}, {.warm_up = 2, .steps = 1});
  expect_as_predicted(cost);
  EXPECT_GT(total(cost.members[0].traffic).messages_sent,
            2 * calls(cost.members[0].traffic, Collective::kAllReduce));
}

TEST(RankTraffic, ShowsTheRingBetweenRanks) {
  const Cost cost = run_ranks(cnn_workload(24, 4), {}, kSpan);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (std::size_t peer = 0; peer < 4; ++peer) {
      const bool is_next = peer == (rank + 1) % 4;
      EXPECT_EQ(cost.members[rank].traffic.by_peer[peer].bytes_sent > 0, is_next);
    }
  }
}

TEST(RankTraffic, BeforeTheBucketsAreFinalIsNotCompared) {
  EXPECT_THROW(run_ranks(cnn_workload(8, 2), {}, {.warm_up = 0, .steps = 1}),
               std::invalid_argument);
}

TEST(RankTraffic, WithBuffersIsNotTakenForTheGradients) {
  const Cost cost = run_ranks(cnn_workload(24, 3), {.broadcast_buffers = true}, kSpan);
  expect_as_predicted(cost);
  for (const Member& member : cost.members) {
    EXPECT_EQ(calls(member.control, Collective::kBroadcast), kSpan.steps);
  }
}

TEST(Phases, OfAStepAddUpToTheStep) {
  for (const int output : {0, 1}) {
    const Workload workload = cnn_workload(24, 3);
    const ModelSize size = measure_size(workload);
    const DpPhases dp = measure_dp_phases(workload, output);
    EXPECT_EQ(dp.inputs, 4 * 24 * size.inputs * 2 / 3);
    EXPECT_EQ(dp.parameters, 4 * 2 * size.parameters);
    EXPECT_EQ(dp.buffers, 4 * 2 * size.buffers);
    EXPECT_EQ(dp.outputs, 4 * 24 * size.outputs * 2 / 3);
    EXPECT_EQ(dp.output_gradients, dp.outputs);
    EXPECT_EQ(dp.gradients, 4 * 2 * size.parameters);
    EXPECT_EQ(dp.rest, 0u);
    EXPECT_EQ(
        dp.inputs + dp.parameters + dp.buffers + dp.outputs + dp.output_gradients + dp.gradients,
        4 * even_dp_elements(size, 24, 3));
  }
}

// Each byte stands where the usual account of the two strategies has it.
TEST(Phases, AreTheUsualAccountOfTheTwoStrategies) {
  const Workload workload = cnn_workload(24, 2);
  const std::uint64_t parameters = 4 * measure_size(workload).parameters;
  const std::uint64_t outputs = 4 * 24 / 2 * measure_size(workload).outputs;
  const std::uint64_t inputs = 4 * 24 / 2 * measure_size(workload).inputs;
  const Cost ddp = run_ranks(workload, {}, kSpan);
  const StepAccount account = account_of(workload, measure_dp_phases(workload, 0), ddp);
  const std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>> rows{
      {"data loader", 0, 0},
      {"splitting into mini-batches", 0, 0},
      {"sharing mini-batches", inputs, 0},
      {"sharing parameters", parameters, 0},
      {"forward", 0, 0},
      {"loss", outputs, 0},
      {"gradients", outputs, 0},
      {"update", parameters, 2 * parameters}};
  ASSERT_EQ(account.phases.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Phase& phase = account.phases[i];
    EXPECT_EQ(std::tuple(phase.name, phase.dp_bytes, phase.ddp_bytes), rows[i]);
  }
  const std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>> besides{
      {"buffers", 4 * measure_size(workload).buffers, 0},
      {"average of the loss", 0, 2 * 8},
      {"anything else", 0, 0}};
  ASSERT_EQ(account.besides.size(), besides.size());
  for (std::size_t i = 0; i < besides.size(); ++i) {
    const Phase& row = account.besides[i];
    EXPECT_EQ(std::tuple(row.name, row.dp_bytes, row.ddp_bytes), besides[i]);
  }
}

TEST(Phases, OutputsTakeWhatIsPredictedOnTheirDevice) {
  const Workload workload = default_mlp(24, 2);
  for (const int output : {0, 1}) {
    const OutputUse use = measure_dp_phases(workload, output).output;
    EXPECT_EQ(use.outputs, 24u * 10 * 4);
    EXPECT_EQ(use.outputs, use.predicted.outputs);
    EXPECT_EQ(use.outputs + use.gradient, use.predicted.with_gradient);
  }
}

TEST(Workloads, ThatCannotBeComparedAreRefused) {
  EXPECT_THROW(check(cnn_workload(8, 1)), std::invalid_argument);
  EXPECT_THROW(check(cnn_workload(3, 4)), std::invalid_argument);
  Workload first_too_large = cnn_workload(8, 2);
  first_too_large.first_batch = 9;
  EXPECT_THROW(check(first_too_large), std::invalid_argument);
  EXPECT_THAT(check(cnn_workload(8, 2)), testing::IsEmpty());
  Workload falls_back = cnn_workload(8, 4);
  falls_back.first_batch = 5;
  EXPECT_THAT(check(falls_back), testing::ElementsAre(testing::HasSubstr("even chunks")));
}

TEST(Workloads, ThatAreMadeUpKeepTheCheckpointingThatWasAskedFor) {
  const auto peak_with = [](Checkpointing checkpointing) {
    Options options;
    options.model = ModelKind::kCnn;
    options.batch = 16;
    options.checkpointing = checkpointing;
    Workload workload = mlp_workload({4, 2}, 4, 2);
    workload.batches.clear();
    const std::shared_ptr<const Model> model = make_up_problem(options, 1, &workload);
    workload.make_model = [model] { return model->clone(); };
    return run_devices(workload, {.devices = 1}, kSpan).members.at(0).peak_memory;
  };
  EXPECT_LT(peak_with(Checkpointing::kPoor), peak_with(Checkpointing::kNone));
}

TEST(Workloads, AreSlicedWithoutGaps) {
  const Workload workload = cnn_workload(7, 2);
  const Batch& whole = workload.batches.front();
  const Batch part = slice(whole, 5, 2);
  EXPECT_EQ(part.inputs.shape(), (Shape{2, 1, 12, 12}));
  EXPECT_EQ(part.inputs.data()[0], whole.inputs.data()[5 * 144]);
  EXPECT_EQ(part.targets[1], whole.targets[6]);
  EXPECT_EQ(part.samples(), 2u);
}

}  // namespace
}  // namespace unisono::train::comparison
