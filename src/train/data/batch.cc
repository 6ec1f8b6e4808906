// Samples side by side in one tensor.
#include <stdexcept>

#include "unisono/train/data.h"

namespace unisono::train {

Batch make_batch(const Dataset& data, std::span<const std::size_t> indices) {
  const Shape sample = data.input_shape();
  Shape shape{indices.size()};
  shape.insert(shape.end(), sample.begin(), sample.end());
  const std::size_t values = element_count(sample);
  const std::size_t targets = data.targets_per_sample();
  Batch batch{.inputs = Tensor::for_host(std::move(shape)),
              .targets = std::vector<std::int32_t>(indices.size() * targets),
              .indices = {indices.begin(), indices.end()}};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= data.size()) {
      throw std::out_of_range("sample " + std::to_string(indices[i]) + " asked of " +
                              data.describe());
    }
    data.read(indices[i], batch.inputs.values().subspan(i * values, values),
              std::span(batch.targets).subspan(i * targets, targets));
  }
  return batch;
}

}  // namespace unisono::train
