// Batches from a data set or made up, and the sizes that the formulas are about.
#include "tools/train/compare_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "unisono/train/loader.h"
#include "unisono/train/models.h"
#include "unisono/train/sampler.h"
#include "unisono/train/scatter_chunks.h"

namespace unisono::train::comparison {

std::vector<std::string> check(const Workload& workload) {
  if (workload.devices < 2) {
    throw std::invalid_argument(
        fmt::format("strategies are compared on 2 devices or more, not on {}; say --devices 0,1",
                    workload.devices));
  }
  const auto devices = static_cast<std::size_t>(workload.devices);
  if (workload.batches.empty() || workload.samples() < devices) {
    throw std::invalid_argument(
        fmt::format("a batch of {} samples leaves some of {} devices without any; raise --batch",
                    workload.batches.empty() ? 0 : workload.samples(), devices));
  }
  const BalancedCheck balanced = check_balanced(workload.samples(), workload.first_batch, devices);
  if (!balanced.refusal.empty()) throw std::invalid_argument("--gpu0-batch: " + balanced.refusal);
  return balanced.notes;
}

ModelSize measure_size(const Workload& workload) {
  const std::unique_ptr<Model> model = workload.make_model();
  const Batch one = slice(workload.batches.front(), 0, 1);
  Pass pass;
  pass.training = false;
  return {.parameters = model->parameters().values().size(),
          .buffers = model->buffers().values().size(),
          .inputs = one.inputs.size(),
          .outputs = model->forward(one.inputs, pass).size(),
          .targets = one.targets.size()};
}

DeviceMemory memory_of_rank(const Workload& workload, int rank) {
  const std::vector<int>& gpus = workload.gpus;
  if (gpus.empty()) return DeviceMemory();
  return DeviceMemory(Residence::kCuda, gpus[static_cast<std::size_t>(rank) % gpus.size()]);
}

std::size_t default_first_batch(std::size_t samples, int devices) {
  const std::size_t share = samples / static_cast<std::size_t>(std::max(devices, 1));
  return std::max<std::size_t>(share * 3 / 4, share > 0 ? 1 : 0);
}

Batch slice(const Batch& batch, std::size_t first, std::size_t count) {
  const std::size_t row = batch.inputs.row_size();
  const std::size_t targets = batch.targets.size() / batch.samples();
  Shape shape = batch.inputs.shape();
  shape[0] = count;
  Batch part;
  part.inputs = Tensor::for_host(shape);
  std::copy_n(batch.inputs.data() + first * row, count * row, part.inputs.data());
  const auto target = batch.targets.begin() + static_cast<std::ptrdiff_t>(first * targets);
  part.targets.assign(target, target + static_cast<std::ptrdiff_t>(count * targets));
  const auto index = batch.indices.begin() + static_cast<std::ptrdiff_t>(first);
  part.indices.assign(index, index + static_cast<std::ptrdiff_t>(count));
  return part;
}

void load_batches(std::shared_ptr<const SampleSource> source, std::size_t samples,
                  std::size_t count, std::uint64_t seed, Workload* workload) {
  const std::unique_ptr<LoadedDataset> data = load(source, nullptr, {.mode = LoadMode::kLazy});
  std::vector<std::size_t> order = random_permutation(data->size(), seed);
  order.resize(std::min(order.size(), samples * count));
  const auto batches = cut_batches(order, samples, true);
  if (batches.empty()) {
    throw std::invalid_argument(fmt::format("a batch of {} samples is more than there are in {}",
                                            samples, source->describe()));
  }
  data->prepare(order);
  for (const std::vector<std::size_t>& batch : batches) {
    workload->batches.push_back(make_batch(*data, batch));
  }
  workload->data = source->describe();
  workload->loaded_bytes = data->report().received_bytes;
}

void make_up_batches(const Shape& image, std::size_t samples, std::size_t count, std::uint64_t seed,
                     Workload* workload) {
  constexpr std::uint32_t kClasses = 10;
  const std::size_t pixels = element_count(image);
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  Shape shape = image;
  shape.insert(shape.begin(), samples);
  for (std::size_t b = 0; b < count; ++b) {
    Batch batch;
    batch.inputs = Tensor(shape);
    for (std::size_t s = 0; s < samples; ++s) {
      const std::uint32_t label = random() % kClasses;
      batch.targets.push_back(static_cast<std::int32_t>(label));
      batch.indices.push_back(b * samples + s);
      for (std::size_t p = 0; p < pixels; ++p) {
        const float noise = static_cast<float>(random() % 256) / 512.0F;
        batch.inputs.data()[s * pixels + p] = noise + (p % kClasses == label ? 0.5F : 0.0F);
      }
    }
    workload->batches.push_back(std::move(batch));
  }
  workload->data = fmt::format("made-up images {}, 10 classes", to_string(image));
}

std::unique_ptr<Model> make_up_problem(const Options& options, std::size_t count,
                                       Workload* workload) {
  constexpr std::size_t kSide = 28;
  const bool is_cnn = options.model == ModelKind::kCnn;
  const Shape image = is_cnn ? Shape{1, kSide, kSide} : Shape{kSide * kSide};
  make_up_batches(image, options.batch, count, options.seed, workload);
  std::unique_ptr<Model> model =
      is_cnn ? make_cnn({.size = kSide, .seed = options.seed}) : make_mlp({.seed = options.seed});
  set_checkpointing(*model, options.checkpointing);
  return model;
}

}  // namespace unisono::train::comparison
