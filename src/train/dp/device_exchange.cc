// The pinned collectives. Empty tensors are not sent: every device knows the counts.
#include "train/dp/device_exchange.h"

#include <algorithm>

#include "train/model/backend.h"

namespace unisono::train {
namespace {

constexpr CallOptions kDirect{.algorithm = "linear"};

bool all_zero(std::span<const std::size_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [](std::size_t count) { return count == 0; });
}

/// In the stream of the calling device.
CallOptions direct() { return in_stream(current_backend(), kDirect); }

template <typename T>
void scatter_any(Communicator* devices, const T* whole, std::span<const std::size_t> counts,
                 std::span<T> mine, std::size_t root, const CallOptions& options) {
  if (all_zero(counts)) return;
  devices->scatter_v(whole, counts, {}, mine.data(), mine.size(), data_type_of<T>,
                     static_cast<Rank>(root), options);
}

template <typename T>
void scatter_on_host(Communicator* devices, const T* whole, std::span<const std::size_t> counts,
                     std::span<T> mine, std::size_t root) {
  if (devices == nullptr) {
    std::copy_n(whole, mine.size(), mine.data());
  } else {
    scatter_any(devices, whole, counts, mine, root, kDirect);
  }
}

void reduce_any(Communicator& devices, std::span<float> values, std::size_t root,
                const CallOptions& options) {
  const bool is_root = devices.rank() == static_cast<Rank>(root);
  devices.reduce(values.data(), is_root ? values.data() : nullptr, values.size(),
                 DataType::kFloat32, ops::sum, static_cast<Rank>(root), options);
}

}  // namespace

void broadcast_values(Communicator* devices, Arena& arena, std::size_t root) {
  if (devices == nullptr || arena.values().empty()) return;
  devices->broadcast(arena.values(), static_cast<Rank>(root), direct());
}

void scatter_values(Communicator* devices, const Tensor& whole, std::span<const std::size_t> counts,
                    Tensor& mine, std::size_t root) {
  if (devices == nullptr) return copy_elements(whole, &mine);
  scatter_any(devices, whole.data(), counts, mine.values(), root, direct());
  // A stream reads the caller's memory until it is done.
  if (whole.on_host()) current_backend().wait();
}

void scatter_values(Communicator* devices, const float* whole, std::span<const std::size_t> counts,
                    std::span<float> mine, std::size_t root) {
  scatter_on_host(devices, whole, counts, mine, root);
}

void scatter_values(Communicator* devices, const std::int32_t* whole,
                    std::span<const std::size_t> counts, std::span<std::int32_t> mine,
                    std::size_t root) {
  scatter_on_host(devices, whole, counts, mine, root);
}

void gather_values(Communicator* devices, const Tensor& mine, std::span<const std::size_t> counts,
                   Tensor& whole, std::size_t root) {
  if (devices == nullptr) return copy_elements(mine, &whole);
  if (all_zero(counts)) return;
  devices->gather_v(mine.data(), mine.size(), whole.data(), counts, {}, DataType::kFloat32,
                    static_cast<Rank>(root), direct());
}

void reduce_values(Communicator* devices, Arena& arena, std::size_t root) {
  if (devices != nullptr && !arena.values().empty()) {
    reduce_any(*devices, arena.values(), root, direct());
  }
}

void reduce_values(Communicator* devices, std::span<float> host, std::size_t root) {
  if (devices != nullptr) reduce_any(*devices, host, root, kDirect);
}

}  // namespace unisono::train
