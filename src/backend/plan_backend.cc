#include "backend/plan_backend.h"

#include <memory>

namespace unisono {

Result<Operation*> PlanBackend::start(StartedCall& call, const CallShape& shape) {
  if (call.execution == nullptr) call.execution = std::make_unique<Execution>(messenger_, scratch_);
  const compute::Reduction* const reduction = call.reduction ? &*call.reduction : nullptr;
  // A prepared input lies in scratch memory and not where the caller has it.
  const bool in_place = shape.in_place && !(reduction != nullptr && reduction->prepares());
  PlanCache::Entry& entry = plans_.get(call.call, *call.choice.algorithm, call.choice.chunks,
                                       in_place, members_.self(), members_.size());
  UNISONO_TRY(
      call.execution->begin({.plan = &entry.plan,
                             .input = call.call.in,
                             .output = call.call.out,
                             .reduction = reduction,
                             .finish_bytes = reduces(call.call.collective) ? shape.output_bytes : 0,
                             .communicator = members_.id(),
                             .sequence = calls_.next(),
                             .record = call.record,
                             .world_ranks = &members_.world_ranks()}));
  call.sequence = calls_.add(call.record);
  call.is_numbered = true;
  call.plan = &entry;
  call.only_sends = entry.plan.only_sends;
  ++entry.in_use;
  messenger_.compare_call(members_.id(), call.sequence, call.record);
  return call.execution.get();
}

void PlanBackend::end(StartedCall& call, bool succeeded) {
  if (succeeded && call.is_counted) traffic_.count_plan(call.call.collective, call.plan->plan);
  --call.plan->in_use;
  call.plan = nullptr;
}

}  // namespace unisono
