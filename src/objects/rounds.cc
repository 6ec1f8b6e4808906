#include "objects/rounds.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace unisono::objects {

Rounds::Rounds(std::vector<std::uint64_t> sizes, std::uint64_t bound)
    : sizes_(std::move(sizes)),
      bound_(bound),
      counts_(sizes_.size(), 0),
      places_(sizes_.size(), 0),
      offsets_(sizes_.size(), 0) {}

bool Rounds::next() {
  std::uint64_t senders = 0;
  for (std::size_t r = 0; r < sizes_.size(); ++r) {
    offsets_[r] += counts_[r];
    if (offsets_[r] < sizes_[r]) ++senders;
  }
  const std::uint64_t chunk =
      std::max<std::uint64_t>(1, bound_ / std::max<std::uint64_t>(1, senders));
  bytes_ = 0;
  for (std::size_t r = 0; r < sizes_.size(); ++r) {
    counts_[r] = std::min(chunk, sizes_[r] - offsets_[r]);
    places_[r] = bytes_;
    bytes_ += counts_[r];
  }
  return senders > 0;
}

std::size_t Rounds::bytes_max() const {
  const std::uint64_t all = std::accumulate(sizes_.begin(), sizes_.end(), std::uint64_t{0});
  return std::min(all, std::max<std::uint64_t>(bound_, sizes_.size()));
}

}  // namespace unisono::objects
