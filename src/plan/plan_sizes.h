// Which buffers a rank has in a collective, and which chunks have the same length on every rank:
// what a checker may know of bytes without knowing any. Pure; safe from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace unisono::plan {

/// True for collectives whose input or output is one vector that the algorithm cuts as it likes.
bool is_one_vector(Collective collective);
/// True for the collectives whose blocks differ in length and may lie apart.
bool has_uneven_blocks(Collective collective);

/// Instead of a number of blocks: one vector, cut by the algorithm.
inline constexpr int kOneVector = -1;
/// Blocks that a rank's buffers have by plan.h, or kOneVector.
int input_blocks_of(const PlanRequest& request);
int output_blocks_of(const PlanRequest& request);

/// Names for lengths: two chunks get the same name exactly when they have the same number of
/// elements in every call that the plans serve.
class ChunkSizes {
 public:
  explicit ChunkSizes(std::span<const Plan> plans) : plans_(plans) {}
  std::uint64_t of(Rank rank, Buffer buffer, std::uint32_t chunk) const;
  /// True when both ranges have the same chunks by length, one after the other.
  bool equal(Rank a_rank, const ChunkRange& a, Rank b_rank, const ChunkRange& b) const;

 private:
  std::span<const Plan> plans_;
};

}  // namespace unisono::plan
