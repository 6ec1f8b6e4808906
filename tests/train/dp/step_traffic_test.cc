// What a step moves between devices, exactly: P parameters, U buffers, X inputs, O outputs.
#include <gmock/gmock.h>

#include "tests/train/dp/toy_models.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {
namespace {

constexpr std::size_t kSamples = 24, kInputs = 3, kOutputs = 5;
constexpr std::uint64_t kP = kInputs * kOutputs, kU = 1, kX = kSamples * kInputs,
                        kO = kSamples * kOutputs, kT = kSamples;

DataParallelOptions options_of(int devices) {
  DataParallelOptions options;
  options.devices = device_list(devices);
  options.loss = half_squares;
  return options;
}

/// Of the last step.
StepReport report_of(const DataParallelOptions& options, std::size_t samples = kSamples,
                     std::uint32_t steps = 3) {
  DataParallel trainer(std::make_unique<ToyLinear>(kInputs, kOutputs), plain_sgd(), options);
  for (std::uint32_t step = 0; step < steps; ++step) {
    trainer.step(integer_batch(samples, kInputs, step), 0.5F);
  }
  return trainer.report();
}

/// Elements sent by all devices, or by one, in one kind of collective.
std::uint64_t sent(const StepReport& report, Collective collective, int device = -1) {
  std::uint64_t bytes = 0;
  for (const DeviceReport& one : report.devices) {
    if (device >= 0 && one.device != device) continue;
    bytes += one.traffic.by_collective[static_cast<std::size_t>(collective)].bytes_sent;
  }
  return bytes / sizeof(float);
}

std::uint64_t sent(const StepReport& report) {
  std::uint64_t elements = 0;
  for (int c = 0; c < kCollectiveCount; ++c) elements += sent(report, static_cast<Collective>(c));
  return elements;
}

std::uint64_t received(const StepReport& report) {
  std::uint64_t bytes = 0;
  for (const DeviceReport& device : report.devices) {
    for (const Traffic& traffic : device.traffic.by_peer) bytes += traffic.bytes_received;
  }
  return bytes / sizeof(float);
}

TEST(StepTraffic, OfDpIsInputsParametersOutputsAndGradients) {
  for (const std::uint64_t n : {1U, 2U, 3U, 4U, 6U}) {
    for (const bool by_first : {false, true}) {
      DataParallelOptions options = options_of(static_cast<int>(n));
      options.inputs_on_first_device = by_first;
      const StepReport report = report_of(options);
      EXPECT_EQ(sent(report, Collective::kBroadcast), (n - 1) * (kP + kU)) << n;
      EXPECT_EQ(sent(report, Collective::kScatterV), (kX + kO) * (n - 1) / n) << n;
      EXPECT_EQ(sent(report, Collective::kGatherV), kO * (n - 1) / n) << n;
      EXPECT_EQ(sent(report, Collective::kReduce), (n - 1) * kP) << n;
      EXPECT_EQ(sent(report),
                kX * (n - 1) / n + (n - 1) * (kP + kU) + 2 * (kO * (n - 1) / n) + (n - 1) * kP)
          << n;
      EXPECT_EQ(received(report), sent(report)) << n;
    }
  }
}

TEST(StepTraffic, OfDpIsTheSameWhereverTheOutputsAreButByOtherDevices) {
  DataParallelOptions options = options_of(3);
  options.output_device = 1;
  const StepReport moved = report_of(options), first = report_of(options_of(3));
  EXPECT_EQ(sent(moved), sent(first));
  EXPECT_EQ(sent(first, Collective::kGatherV, 0), 0U);
  EXPECT_EQ(sent(moved, Collective::kGatherV, 0), kO / 3);
  EXPECT_EQ(sent(moved, Collective::kGatherV, 1), 0U);
  EXPECT_EQ(sent(moved, Collective::kScatterV, 1), kO * 2 / 3) << "output gradients";
  EXPECT_EQ(sent(moved, Collective::kScatterV, 0), kX * 2 / 3);
}

TEST(StepTraffic, OfAParallelLossHasTargetsAndScalarsForOutputs) {
  for (const std::uint64_t n : {1U, 2U, 3U, 4U}) {
    DataParallelOptions options = options_of(static_cast<int>(n));
    options.parallel_loss = true;
    const StepReport report = report_of(options);
    EXPECT_EQ(sent(report, Collective::kBroadcast), (n - 1) * (kP + kU)) << n;
    EXPECT_EQ(sent(report, Collective::kScatterV), (kX + kT) * (n - 1) / n + (n - 1)) << n;
    EXPECT_EQ(sent(report, Collective::kGatherV), 0U) << n;
    EXPECT_EQ(sent(report, Collective::kReduce), (n - 1) * kP + (n - 1)) << n;
  }
}

TEST(StepTraffic, GoesToAsManyDevicesAsThereArePiecesFromTheFirstStepOn) {
  for (const std::uint32_t steps : {1U, 3U}) {
    const StepReport report = report_of(options_of(4), 5, steps);
    EXPECT_EQ(sent(report), kInputs * 3 + 2 * (kP + kU) + 2 * (kOutputs * 3) + 2 * kP)
        << "the first device takes 2 samples of 5, the others 2 and 1";
    EXPECT_EQ(sent(report, Collective::kBroadcast), 2 * (kP + kU));
    EXPECT_EQ(sent(report, Collective::kReduce), 2 * kP);
    for (const Traffic& traffic : report.devices[3].traffic.by_peer) {
      EXPECT_EQ(traffic.bytes_sent + traffic.bytes_received, 0U);
    }
  }
}

TEST(StepTraffic, IsWithoutBuffersWhereReplicasKeepTheirOwn) {
  DataParallelOptions options = options_of(3);
  options.broadcast_buffers = false;
  EXPECT_EQ(sent(report_of(options), Collective::kBroadcast), 2 * kP);
}

TEST(StepTraffic, IsFromAndToTheFirstDeviceOnly) {
  const StepReport report = report_of(options_of(3));
  EXPECT_EQ(report.devices[0].traffic.by_peer[1].bytes_sent,
            report.devices[0].traffic.by_peer[2].bytes_sent);
  EXPECT_EQ(report.devices[1].traffic.by_peer[2].bytes_sent, 0U);
  EXPECT_EQ(report.devices[2].traffic.by_peer[1].bytes_sent, 0U);
}

TEST(StepTraffic, CountsACallPerPurpose) {
  const StepReport report = report_of(options_of(2));
  for (const DeviceReport& device : report.devices) {
    const auto calls = [&](Collective c) {
      return device.traffic.calls[static_cast<std::size_t>(c)];
    };
    EXPECT_EQ(calls(Collective::kBroadcast), 2U) << "parameters, buffers";
    EXPECT_EQ(calls(Collective::kScatterV), 2U) << "inputs, output gradients";
    EXPECT_EQ(calls(Collective::kGatherV), 1U) << "outputs";
    EXPECT_EQ(calls(Collective::kReduce), 1U) << "gradients";
  }
}

TEST(StepTraffic, AddsUpOverThePassesOfAStep) {
  DataParallel trainer(std::make_unique<ToyLinear>(kInputs, kOutputs), plain_sgd(), options_of(2));
  trainer.step(integer_batch(kSamples, kInputs, 1), 0.5F);
  const std::uint64_t once = sent(trainer.report());
  trainer.backward(integer_batch(kSamples, kInputs, 2), 0.5F);
  trainer.backward(integer_batch(kSamples, kInputs, 3), 0.5F);
  trainer.update(0.5F);
  EXPECT_EQ(sent(trainer.report()), 2 * once);
  EXPECT_EQ(trainer.report().threads_started, 4U);
}

}  // namespace
}  // namespace unisono::train
