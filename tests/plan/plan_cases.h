// Builds the plans of all ranks of one call, for tests.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "base/collective.h"
#include "plan/plan.h"

namespace unisono::plan_test {

enum class InPlace { kNobody, kEverybody, kOddRanks };

inline std::vector<plan::Plan> build_all(const algorithms::Algorithm& algorithm,
                                         plan::PlanRequest request,
                                         InPlace in_place = InPlace::kNobody) {
  std::vector<plan::Plan> plans;
  plans.reserve(static_cast<std::size_t>(request.ranks));
  const bool may_be = facts_of(request.collective).in_place != unisono::InPlace::kNever;
  for (Rank rank = 0; rank < request.ranks; ++rank) {
    request.rank = rank;
    request.in_place = may_be && (in_place == InPlace::kEverybody ||
                                  (in_place == InPlace::kOddRanks && rank % 2 == 1));
    plans.push_back(algorithm.build(request));
  }
  return plans;
}

/// Every message of the call: its send and its receive.
inline std::vector<std::pair<const plan::Step*, const plan::Step*>> messages_of(
    const std::vector<plan::Plan>& plans) {
  std::map<std::tuple<Rank, Rank, std::uint32_t>, const plan::Step*> sends;
  for (const plan::Plan& plan : plans) {
    for (const plan::Step& step : plan.steps) {
      if (step.kind != plan::StepKind::kSend) continue;
      sends[{plan.request.rank, step.peer, step.message_index}] = &step;
    }
  }
  std::vector<std::pair<const plan::Step*, const plan::Step*>> messages;
  for (const plan::Plan& plan : plans) {
    for (const plan::Step& step : plan.steps) {
      if (step.kind != plan::StepKind::kReceive && step.kind != plan::StepKind::kReceiveReduce) {
        continue;
      }
      messages.emplace_back(sends.at({step.peer, plan.request.rank, step.message_index}), &step);
    }
  }
  return messages;
}

/// "all_reduce_ring", also a valid test name.
inline std::string title_of(const algorithms::Algorithm& algorithm) {
  return std::string(name_of(algorithm.collective)) + "_" + std::string(algorithm.name);
}

}  // namespace unisono::plan_test
