// The two phases of every ring algorithm: data only ever move from rank r to rank r + 1. Pure
// apart from the builder they append to.
#pragma once

#include <functional>

#include "plan/plan_builder.h"

namespace unisono::algorithms {

/// Where the partial result of ring step `step`, for block `block`, is kept.
using PartialTarget = std::function<plan::ChunkRange(int step, int block)>;

/// N - 1 steps; in step s this rank sends block first - s and reduces block first - s - 1 (mod N)
/// with its own input. Afterwards the last partial, of block first + 1, is complete. Reads each
/// operand from the input, so nothing is copied beforehand.
void ring_reduce_scatter(plan::PlanBuilder& builder, const plan::PlanRequest& request, int first,
                         const PartialTarget& target_of);

/// N - 1 steps; in step s this rank sends block owned - s and receives block owned - s - 1 (mod N)
/// of the output. Its own block is sent from `owned_source`.
void ring_all_gather(plan::PlanBuilder& builder, const plan::PlanRequest& request, int owned,
                     const plan::ChunkRange& owned_source);

}  // namespace unisono::algorithms
