// What the outputs must hold once the plans have run.
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/expectation.h"
#include "plan/plan_check.h"
#include "plan/symbolic_run.h"

namespace unisono::plan {
namespace {

bool is_expected(SymbolTable& symbols, const PlanRequest& request, const Expectation& wanted,
                 Value value) {
  if (value == kUndefined || symbols.chunk_of(value) != wanted.chunk) return false;
  if (request.order == Order::kExact && wanted.count > 1) {
    return value == symbols.reduced_at_once(wanted.first, wanted.count, wanted.chunk);
  }
  if (request.order == Order::kCanonical || wanted.count == 1) {
    return value == symbols.canonical_tree(wanted.first, wanted.count, wanted.chunk);
  }
  std::vector<Rank> operands = symbols.operands(value);
  if (operands.size() != static_cast<std::size_t>(wanted.count)) return false;
  std::vector<bool> seen(operands.size(), false);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto place = static_cast<std::size_t>(operands[i] - wanted.first);
    if (place >= seen.size() || seen[place]) return false;
    if (!request.commutative && place != i) return false;
    seen[place] = true;
  }
  return true;
}

std::string wanted_order(const PlanRequest& request) {
  if (request.order == Order::kExact) return " at once";
  if (request.order == Order::kCanonical) return " by the canonical tree";
  return request.commutative ? " once each" : " in rank order";
}

Status check_outputs(std::span<const Plan> plans, SymbolicRun& run) {
  for (const Plan& plan : plans) {
    const PlanRequest& request = plan.request;
    const auto chunks = static_cast<std::uint32_t>(plan.output_blocks * request.chunks);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const Expectation wanted = expected(request, chunk);
      if (wanted.count == 0) continue;
      const Value value = run.output(request.rank, chunk);
      const bool same_everywhere = request.collective == Collective::kAllReduce;
      if (same_everywhere && value != run.output(0, chunk)) {
        return {ErrorCode::kInvalidArgument,
                "output chunk " + std::to_string(chunk) + " is " + run.symbols().text(value) +
                    " on rank " + std::to_string(request.rank) + " but " +
                    run.symbols().text(run.output(0, chunk)) + " on rank 0",
                request.rank};
      }
      if (same_everywhere && request.rank != 0) continue;
      if (is_expected(run.symbols(), request, wanted, value)) continue;
      return {ErrorCode::kInvalidArgument,
              "output chunk " + std::to_string(chunk) + " of rank " + std::to_string(request.rank) +
                  " is " + run.symbols().text(value) + ", not ranks " +
                  std::to_string(wanted.first) + " to " +
                  std::to_string(wanted.first + wanted.count - 1) + " of chunk " +
                  std::to_string(wanted.chunk) + wanted_order(request),
              request.rank};
    }
  }
  return {};
}

Status check_barrier(std::span<const Plan> plans, const SymbolicRun& run) {
  const auto ranks = static_cast<Rank>(plans.size());
  const std::vector<RankSet> heard = run.heard();
  for (Rank rank = 0; rank < ranks; ++rank) {
    for (Rank other = 0; other < ranks; ++other) {
      if (heard[static_cast<std::size_t>(rank)].test(static_cast<std::size_t>(other))) continue;
      return {ErrorCode::kInvalidArgument,
              "rank " + std::to_string(rank) + " leaves the barrier without knowing that rank " +
                  std::to_string(other) + " has arrived",
              rank};
    }
  }
  return {};
}

}  // namespace

std::size_t symbols_to_check(std::span<const Plan> plans) {
  constexpr std::size_t kRanksInSymbol = 64 * 8;
  std::size_t symbols = 0;
  for (const Plan& plan : plans) {
    const int blocks = plan.input_blocks + plan.output_blocks;
    symbols += static_cast<std::size_t>(blocks) * static_cast<std::size_t>(plan.request.chunks) +
               plan.scratch_like.size();
    if (plan.request.collective == Collective::kBarrier) {
      symbols += plan.steps.size() * (plans.size() / kRanksInSymbol);
    }
  }
  return symbols;
}

Status check_result(std::span<const Plan> plans, SendSemantics semantics) {
  SymbolicRun run(plans, semantics);
  UNISONO_TRY(run.run());
  if (plans.front().request.collective == Collective::kBarrier) return check_barrier(plans, run);
  return check_outputs(plans, run);
}

}  // namespace unisono::plan
