#include "tests/train/compare/workloads.h"

#include "unisono/train/models.h"

namespace unisono::train::comparison {
namespace {

constexpr std::size_t kBatches = 3;

Workload workload_of(std::function<std::unique_ptr<Model>()> make_model, const Shape& image,
                     std::size_t samples, int devices) {
  Workload workload;
  workload.make_model = std::move(make_model);
  workload.make_optimizer = [](std::size_t count) { return make_sgd(count); };
  workload.devices = devices;
  workload.rate = 0.01F;
  workload.first_batch = default_first_batch(samples, devices);
  make_up_batches(image, samples, kBatches, 7, &workload);
  return workload;
}

}  // namespace

Workload mlp_workload(std::vector<std::size_t> widths, std::size_t samples, int devices) {
  const std::size_t pixels = widths.front();
  return workload_of([widths] { return make_mlp({.widths = widths}); }, {pixels}, samples, devices);
}

Workload cnn_workload(std::size_t samples, int devices) {
  return workload_of(
      [] {
        return make_cnn({.size = 12, .filters = {3, 5}});
      },
      {1, 12, 12}, samples, devices);
}

}  // namespace unisono::train::comparison
