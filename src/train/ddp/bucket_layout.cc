#include "train/ddp/bucket_layout.h"

#include <algorithm>
#include <numeric>

namespace unisono::train {

BucketLayout assign_buckets(const Arena& parameters, std::span<const int> order,
                            std::span<const std::size_t> limits) {
  BucketLayout layout;
  std::vector<int> bucket;
  std::size_t bytes = 0;
  for (const int parameter : order) {
    bucket.push_back(parameter);
    bytes += parameters.entries().at(static_cast<std::size_t>(parameter)).count * sizeof(float);
    if (bytes < limits[std::min(layout.size(), limits.size() - 1)]) continue;
    layout.push_back(std::move(bucket));
    bucket.clear();
    bytes = 0;
  }
  if (!bucket.empty()) layout.push_back(std::move(bucket));
  return layout;
}

std::vector<int> reverse_registration_order(std::size_t count) {
  std::vector<int> order(count);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

}  // namespace unisono::train
