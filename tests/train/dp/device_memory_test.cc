// Who holds how much: outputs and their gradient on the output device in dp, less of the rest on
// the first device in dp-balanced, every device the same in dp-criterion.
#include <gmock/gmock.h>

#include "tests/train/dp/toy_models.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {
namespace {

constexpr std::size_t kSamples = 64, kInputs = 2, kOutputs = 1024;
constexpr std::size_t kParameterBytes = kInputs * kOutputs * sizeof(float);
constexpr std::size_t kOutputBytes = kSamples * kOutputs * sizeof(float);
/// Inputs, buffers and what tensors are padded by.
constexpr std::size_t kSmall = 4096;

DataParallelOptions options_of(int devices) {
  DataParallelOptions options;
  options.devices = device_list(devices);
  options.loss = half_squares;
  return options;
}

std::unique_ptr<Model> wide() { return std::make_unique<ToyLinear>(kInputs, kOutputs); }

std::vector<std::size_t> peaks_of_a_step(const DataParallelOptions& options) {
  DataParallel trainer(wide(), plain_sgd(), options);
  const Batch batch = integer_batch(kSamples, kInputs, 1);
  trainer.step(batch, 0.5F);
  trainer.step(batch, 0.5F);
  std::vector<std::size_t> peaks;
  for (const DeviceReport& device : trainer.report().devices) peaks.push_back(device.peak_memory);
  return peaks;
}

TEST(DeviceMemoryOfDp, HoldsOutputsAndTheirGradientOnTheOutputDevice) {
  const std::vector<std::size_t> first = peaks_of_a_step(options_of(4));
  DataParallelOptions options = options_of(4);
  options.output_device = 1;
  const std::vector<std::size_t> second = peaks_of_a_step(options);
  for (const auto& [peaks, output_device] : {std::pair(first, 0U), std::pair(second, 1U)}) {
    EXPECT_GE(peaks[output_device], 2 * kParameterBytes + 2 * kOutputBytes);
    EXPECT_LE(peaks[3], 3 * kParameterBytes + kOutputBytes / 4 + kSmall);
    EXPECT_GT(peaks[output_device], peaks[3] + kOutputBytes);
  }
  EXPECT_LT(second[0], first[0] - kOutputBytes) << "moved away from the first device";
}

TEST(DeviceMemoryOfDp, IsAboutTheSameOnEveryDeviceWithAParallelLoss) {
  DataParallelOptions options = options_of(4);
  options.parallel_loss = true;
  const std::vector<std::size_t> peaks = peaks_of_a_step(options);
  // The optimizer's state may be on the first device.
  EXPECT_LE(peaks[0], peaks[3] + kParameterBytes + kSmall);
  EXPECT_LE(peaks[0], 3 * kParameterBytes + 2 * kOutputBytes / 4 + kSmall);
}

TEST(DeviceMemoryOfDp, IsLowerOnTheFirstDeviceWhenItTakesFewerSamples) {
  DataParallelOptions even = options_of(2);
  even.output_device = 1;
  DataParallelOptions balanced = even;
  balanced.first_batch = 8;
  EXPECT_LE(peaks_of_a_step(balanced)[0] + kOutputBytes / 4, peaks_of_a_step(even)[0]);
  even.output_device = balanced.output_device = 0;
  EXPECT_LT(peaks_of_a_step(balanced)[0], peaks_of_a_step(even)[0]);
}

TEST(DeviceMemoryOfDp, IsTakenByInputsWhereTheyAreMovedToTheFirstDevice) {
  DataParallelOptions options = options_of(2);
  options.loss = half_squares;
  std::vector<std::size_t> peaks;
  for (const bool on_first_device : {false, true}) {
    options.inputs_on_first_device = on_first_device;
    DataParallel trainer(std::make_unique<ToyLinear>(1024, 1), plain_sgd(), options);
    trainer.step(integer_batch(kSamples, 1024, 1), 0.5F);
    peaks.push_back(trainer.report().devices[0].peak_memory);
  }
  EXPECT_GT(peaks[1], peaks[0] + kSamples * 1024 * sizeof(float) / 4);
}

/// Whether a step fits when the first device has `limit` bytes.
bool fits(DataParallelOptions options, std::size_t limit) {
  DataParallel trainer(wide(), plain_sgd(), std::move(options));
  trainer.set_memory_limit(0, limit);
  const Batch batch = integer_batch(kSamples, kInputs, 1);
  bool fitted = true;
  try {
    trainer.step(batch, 0.5F);
  } catch (const OutOfDeviceMemory&) {
    fitted = false;
  }
  trainer.set_memory_limit(0, 0);
  trainer.step(batch, 0.5F);  // whatever happened, it goes on
  return fitted;
}

TEST(DeviceMemoryOfDp, ThatRunsOutOnTheFirstDeviceIsCuredByTheOtherStrategies) {
  DataParallelOptions moved = options_of(4), parallel = options_of(4);
  moved.output_device = 1;
  parallel.parallel_loss = true;
  const std::size_t limit = 3 * kParameterBytes + kOutputBytes;
  EXPECT_FALSE(fits(options_of(4), limit));
  EXPECT_TRUE(fits(moved, limit));
  EXPECT_TRUE(fits(parallel, limit));
}

TEST(DeviceMemoryOfDp, OfOutputsIsGivenBackWithThem) {
  DataParallel trainer(wide(), plain_sgd(), options_of(2));
  const std::size_t before = trainer.report().devices[0].memory;
  {
    const Tensor outputs = trainer.forward(integers({kSamples, kInputs}, 1));
    EXPECT_GE(trainer.report().devices[0].memory, before + kOutputBytes);
  }
  EXPECT_EQ(trainer.report().devices[0].memory, before);
}

}  // namespace
}  // namespace unisono::train
