// Proves that the plans of all ranks of one call do what the collective promises, by symbols, with
// no byte moved. For tests and `unisono plan`; pure, any thread. Time grows with the number of
// steps of all ranks together and with symbols_to_check().
#pragma once

#include <span>

#include "plan/plan.h"
#include "unisono/error.h"

namespace unisono::plan {

/// When a send is complete.
enum class SendSemantics {
  kRendezvous,  ///< not before its receive has started: RDMA, zero-copy, large messages
  kEager,       ///< at once: the bytes are captured
};

/// All of the checks below; plans[r] is the plan of rank r. The status names the first fault.
Status check_plans(std::span<const Plan> plans);

/// How many symbols check_plans() keeps, some 64 bytes for each: one for each chunk of the buffers
/// of all ranks, and what the steps of a barrier know of the ranks.
std::size_t symbols_to_check(std::span<const Plan> plans);

/// Each plan by itself: the ranks mean the same call, buffers have the blocks that the collective
/// gives them, ranges lie inside, dependencies point back, channel indices count, lengths of
/// sources and targets agree, and the caller's input is left as it is.
Status check_structure(std::span<const Plan> plans);

/// The k-th send of every channel has a k-th receive of the same length, and the other way round.
Status check_channels(std::span<const Plan> plans);

/// No two steps touch the same memory, one of them writing, unless one waits for the other.
Status check_hazards(const Plan& plan);

/// Runs all plans: all steps complete (messages of a channel start in order, which is the strictest
/// an engine may be), and the outputs hold what they should: every operand once, in rank order
/// where the operator does not commute, by the canonical tree where the request says so, and the
/// same expression on all ranks of an all-reduce. Needs plans that pass the checks above.
Status check_result(std::span<const Plan> plans, SendSemantics semantics);

}  // namespace unisono::plan
