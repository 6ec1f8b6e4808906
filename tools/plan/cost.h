// How long the algorithms of a collective take on an imagined network: their plans are walked, no
// byte moves. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/plan_timing.h"

namespace unisono::tools {

/// Of the plans of all ranks together: what fits in memory and a few seconds.
inline constexpr std::size_t kStepsMax = 2'000'000;

struct PlanCost {
  const algorithms::Algorithm* algorithm = nullptr;
  std::string refusal;  ///< why nothing is known of it; empty when the rest is
  int chunks = 1;       ///< of a block
  double seconds = 0;
  std::size_t messages = 0;
  double bytes_between_nodes = 0;  ///< of all messages together
};

/// The plans of all ranks; those of the first ranks alone when all have more than kStepsMax steps.
struct PlansOfAll {
  std::vector<plan::Plan> plans;
  bool are_complete = false;
};
PlansOfAll build_plans(const algorithms::Algorithm& algorithm, plan::PlanRequest request);

PlanCost cost_on_network(const algorithms::Algorithm& algorithm, const plan::PlanRequest& request,
                         std::size_t bytes, const plan::NetworkModel& network);

/// What costs_on_network tries at most.
inline constexpr int kChunksTried = 64;

/// All algorithms of the request's collective, or the one of this name: the fastest first, those
/// of which nothing is known last. Each in the request's chunks, or in what suits it best of these,
/// twice these and so on up to `chunks_max`, as far as its plans can be walked.
std::vector<PlanCost> costs_on_network(const plan::PlanRequest& request, std::string_view name,
                                       std::size_t bytes, const plan::NetworkModel& network,
                                       int chunks_max = 1);

/// As text or JSON for people and programs; ends in a newline.
std::string text_of_costs(const std::vector<PlanCost>& costs, const plan::PlanRequest& request,
                          std::size_t bytes, const plan::NetworkModel& network);
std::string json_of_costs(const std::vector<PlanCost>& costs, const plan::PlanRequest& request,
                          std::size_t bytes, const plan::NetworkModel& network);

}  // namespace unisono::tools
