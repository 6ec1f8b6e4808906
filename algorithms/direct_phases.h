// Phases in which every rank talks to every other one at once, and the canonical tree that a rank
// computes by itself once it holds all operands. Pure apart from the builder they append to.
#pragma once

#include "plan/plan_builder.h"

namespace unisono::algorithms {

/// Receives one operand from each of the ranks 0 .. operands - 1 but this one, which contributes
/// `own` when it is among them, and reduces them chunk by chunk into `result`: at once in the exact
/// order, else by the canonical tree: T(lo, hi) splits at lo + the largest power of two below
/// hi - lo. At least one operand.
void receive_and_reduce(plan::PlanBuilder& builder, const plan::PlanRequest& request, int operands,
                        const plan::ChunkRange& own, const plan::ChunkRange& result);

/// Sends `own` to every other rank and receives every other rank's block into the output. Peers
/// are taken in the order r + 1, r + 2, ... so that not all ranks turn to the same one.
void direct_all_gather(plan::PlanBuilder& builder, const plan::PlanRequest& request,
                       const plan::ChunkRange& own);

/// Sends input block p to rank p, for every other rank p.
void send_blocks(plan::PlanBuilder& builder, const plan::PlanRequest& request);

}  // namespace unisono::algorithms
