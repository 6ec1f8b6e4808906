// Who is in a communicator: its number and its ranks, as the world numbers them.
//
// Thread rule: immutable.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/types.h"

namespace unisono {

class Members {
 public:
  /// `self`: this rank's place among `world_ranks`.
  Members(std::uint32_t id, std::vector<Rank> world_ranks, Rank self)
      : id_(id), world_ranks_(std::move(world_ranks)), self_(self) {}

  /// Of the communicator, among those of the job.
  std::uint32_t id() const { return id_; }
  Rank self() const { return self_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<Rank>& world_ranks() const { return world_ranks_; }
  std::vector<Rank> sorted_world_ranks() const {
    std::vector<Rank> sorted = world_ranks_;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }
  Rank world_rank(Rank member) const { return world_ranks_[static_cast<std::size_t>(member)]; }
  /// The member that has this world rank, or -1.
  Rank find(Rank world_rank) const {
    const auto same = static_cast<std::size_t>(world_rank);  // as in the world itself
    if (same < world_ranks_.size() && world_ranks_[same] == world_rank) return world_rank;
    const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
    return found == world_ranks_.end() ? -1 : static_cast<Rank>(found - world_ranks_.begin());
  }

 private:
  const std::uint32_t id_;
  const std::vector<Rank> world_ranks_;
  const Rank self_;
};

}  // namespace unisono
