// The pinned collectives. Empty tensors are not sent: every device knows the counts.
#include "train/dp/device_exchange.h"

#include <algorithm>

namespace unisono::train {
namespace {

constexpr CallOptions kDirect{.algorithm = "linear"};

bool all_zero(std::span<const std::size_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [](std::size_t count) { return count == 0; });
}

template <typename T>
void scatter_any(Communicator* devices, const T* whole, std::span<const std::size_t> counts,
                 std::span<T> mine, std::size_t root) {
  if (devices == nullptr) {
    std::copy_n(whole, mine.size(), mine.data());
  } else if (!all_zero(counts)) {
    devices->scatter_v(whole, counts, {}, mine.data(), mine.size(), data_type_of<T>,
                       static_cast<Rank>(root), kDirect);
  }
}

}  // namespace

void broadcast_values(Communicator* devices, std::span<float> values, std::size_t root) {
  if (devices == nullptr || values.empty()) return;
  devices->broadcast(values, static_cast<Rank>(root), kDirect);
}

void scatter_values(Communicator* devices, const float* whole, std::span<const std::size_t> counts,
                    std::span<float> mine, std::size_t root) {
  scatter_any(devices, whole, counts, mine, root);
}

void scatter_values(Communicator* devices, const std::int32_t* whole,
                    std::span<const std::size_t> counts, std::span<std::int32_t> mine,
                    std::size_t root) {
  scatter_any(devices, whole, counts, mine, root);
}

void gather_values(Communicator* devices, std::span<const float> mine,
                   std::span<const std::size_t> counts, float* whole, std::size_t root) {
  if (devices == nullptr) {
    std::copy(mine.begin(), mine.end(), whole);
  } else if (!all_zero(counts)) {
    devices->gather_v(mine.data(), mine.size(), whole, counts, {}, DataType::kFloat32,
                      static_cast<Rank>(root), kDirect);
  }
}

void reduce_values(Communicator* devices, std::span<float> values, std::size_t root) {
  if (devices == nullptr || values.empty()) return;
  const bool is_root = devices->rank() == static_cast<Rank>(root);
  devices->reduce(values.data(), is_root ? values.data() : nullptr, values.size(),
                  DataType::kFloat32, sum, static_cast<Rank>(root), kDirect);
}

}  // namespace unisono::train
