#include "tools/train/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "unisono/train/models.h"

namespace unisono::train {
namespace {

constexpr std::size_t kContext = 64;
// Of Fashion-MNIST's training pixels; near enough for any set of images mostly black.
constexpr float kPixelMean = 0.286F, kPixelDeviation = 0.353F;

std::shared_ptr<const SampleSource> open_images(const Options& options, bool is_test) {
  return open_idx({.directory = options.data,
                   .is_test = is_test,
                   .is_flat = options.model == ModelKind::kMlp,
                   .mean = kPixelMean,
                   .deviation = kPixelDeviation});
}

std::shared_ptr<const SampleSource> open_characters(const Options& options,
                                                    TextOptions::Part part) {
  TextOptions text{.context = kContext, .part = part};
  if (!options.data.empty()) text.paths = {options.data};
  if (options.sort_batches) text.unit = TextOptions::Unit::kLines;
  return open_text(text);
}

}  // namespace

Problem open_problem(const Options& options) {
  Problem problem;
  if (options.model == ModelKind::kGpt) {
    problem.train = open_characters(options, TextOptions::Part::kTrain);
    problem.test = open_characters(options, TextOptions::Part::kValidation);
  } else {
    problem.train = open_images(options, false);
    problem.test = open_images(options, true);
  }
  if (problem.train->size() < options.batch) {
    throw std::invalid_argument(
        fmt::format("--batch {} is more than there are samples to train on ({}): no sample is left "
                    "for a whole step on any rank",
                    options.batch, problem.train->describe()));
  }
  if (problem.test->input_shape() != problem.train->input_shape() ||
      problem.test->classes() > problem.train->classes()) {
    throw std::invalid_argument(
        fmt::format("a model of the samples to train on ({}) cannot take those to test with ({}); "
                    "name a folder of one set by --data",
                    problem.train->describe(), problem.test->describe()));
  }
  return problem;
}

std::unique_ptr<Model> make_model(const Options& options, const SampleSource& samples) {
  const Shape shape = samples.input_shape();
  const auto classes = static_cast<std::size_t>(samples.classes());
  std::unique_ptr<Model> model;
  switch (options.model) {
    case ModelKind::kMlp:
      model = make_mlp({.widths = {element_count(shape), 256, classes}, .seed = options.seed});
      break;
    case ModelKind::kCnn:
      if (shape.size() != 3 || shape[1] != shape[2]) {
        throw std::invalid_argument("--model cnn takes square images, not " + samples.describe() +
                                    "; mlp takes any");
      }
      model = make_cnn(
          {.channels = shape[0], .size = shape[1], .classes = classes, .seed = options.seed});
      break;
    case ModelKind::kGpt:
      model = make_gpt({.vocabulary = classes, .context = shape[0], .seed = options.seed});
      break;
  }
  if (options.sync_bn) convert_sync_batch_norm(*model);
  set_checkpointing(*model, options.checkpointing);
  return model;
}

std::size_t steps_of_epoch(const Options& options, const SampleSource& samples) {
  const std::size_t steps = samples.size() / options.batch;
  return options.limit_steps > 0 ? std::min(steps, options.limit_steps) : steps;
}

std::string order_of(const Options& options) {
  if (options.bitwise) return "micro-batches of --bitwise";
  // As --sort-batches alone, the longest were left out of every epoch.
  return options.sort_batches ? "--sort-batches, any left out" : "shuffled";
}

std::unique_ptr<Sampler> make_sampler(const Options& options, const Dataset& data,
                                      RankPlace place) {
  if (options.bitwise) {
    return std::make_unique<GlobalMicroBatchSampler>(
        data.size(), place,
        MicroBatchOptions{.micro_batches = kMicroBatches,
                          .micro_batch_samples = options.pass_samples(),
                          .seed = options.seed});
  }
  if (options.sort_batches) {
    return std::make_unique<SortedBatchSampler>(
        data, place,
        SortedBatchOptions{.batch_samples = options.pass_samples() * options.accumulate,
                           .seed = options.seed,
                           .drop_last = true});
  }
  return std::make_unique<DistributedSampler>(
      data.size(), place, DistributedSamplerOptions{.seed = options.seed, .drop_last = true});
}

}  // namespace unisono::train
