#include "tools/plan/cost.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/common/json_text.h"
#include "tools/common/sizes.h"
#include "tools/common/table.h"
#include "tools/plan/topology.h"

namespace unisono::tools {
namespace {

std::string formatted(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// Takes as many chunks as suit the algorithm best.
PlanCost best_cost(const algorithms::Algorithm& algorithm, plan::PlanRequest request,
                   std::size_t bytes, const plan::NetworkModel& network, int chunks_max) {
  PlanCost best = cost_on_network(algorithm, request, bytes, network);
  while (best.refusal.empty() && request.chunks * 2 <= chunks_max) {
    request.chunks *= 2;
    PlanCost cost = cost_on_network(algorithm, request, bytes, network);
    if (!cost.refusal.empty()) break;
    // Shares of bytes differ in their last digits.
    if (cost.seconds < best.seconds * (1 - 1e-9)) best = std::move(cost);
  }
  return best;
}

}  // namespace

PlansOfAll build_plans(const algorithms::Algorithm& algorithm, plan::PlanRequest request) {
  PlansOfAll all;
  std::size_t steps = 0;
  for (request.rank = 0; request.rank < request.ranks && steps <= kStepsMax; ++request.rank) {
    all.plans.push_back(algorithm.build(request));
    steps += all.plans.back().steps.size();
  }
  all.are_complete = steps <= kStepsMax;
  return all;
}

PlanCost cost_on_network(const algorithms::Algorithm& algorithm, const plan::PlanRequest& request,
                         std::size_t bytes, const plan::NetworkModel& network) {
  PlanCost cost{.algorithm = &algorithm,
                .refusal = std::string(algorithm.refuses(request)),
                .chunks = request.chunks};
  if (!cost.refusal.empty()) return cost;
  const PlansOfAll all = build_plans(algorithm, request);
  if (!all.are_complete) {
    cost.refusal = "its plans have more than " + std::to_string(kStepsMax) +
                   " steps, the most that are walked: try fewer --ranks or --chunks";
    return cost;
  }
  const plan::PlanTiming timing = plan::time_plans(all.plans, bytes, network);
  cost.seconds = timing.end;
  cost.messages = timing.messages.size();
  for (const plan::TimedMessage& message : timing.messages) {
    if (network.node_of(message.sender) == network.node_of(message.receiver)) continue;
    cost.bytes_between_nodes += static_cast<double>(message.bytes);
  }
  return cost;
}

std::vector<PlanCost> costs_on_network(const plan::PlanRequest& request, std::string_view name,
                                       std::size_t bytes, const plan::NetworkModel& network,
                                       int chunks_max) {
  std::vector<PlanCost> costs;
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    if (algorithm.collective != request.collective) continue;
    if (!name.empty() && algorithm.name != name) continue;
    costs.push_back(best_cost(algorithm, request, bytes, network, chunks_max));
  }
  std::stable_sort(costs.begin(), costs.end(), [](const PlanCost& a, const PlanCost& b) {
    if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
    return a.refusal.empty() && a.seconds < b.seconds;
  });
  return costs;
}

std::string text_of_costs(const std::vector<PlanCost>& costs, const plan::PlanRequest& request,
                          std::size_t bytes, const plan::NetworkModel& network) {
  std::string text(name_of(request.collective));
  if (request.collective != Collective::kBarrier) {
    text += " of " + format_bytes_rounded(static_cast<double>(bytes));
  }
  text += ", " + std::to_string(request.ranks) +
          " ranks: " + describe_topology(network, request.ranks) + "\n\n";
  Table table({{"algorithm", Align::kLeft}, {"us"}, {"chunks"}, {"messages"}, {"between nodes"}});
  std::string unknown;
  for (const PlanCost& cost : costs) {
    const std::string name(cost.algorithm->name);
    if (!cost.refusal.empty()) {
      unknown += name + ": " + cost.refusal + "\n";
      continue;
    }
    table.add_row({name, formatted(cost.seconds * 1e6), std::to_string(cost.chunks),
                   std::to_string(cost.messages), format_bytes_rounded(cost.bytes_between_nodes)});
  }
  if (table.row_count() > 0) text += table.text();
  if (!unknown.empty()) text += "\nNot predicted:\n" + unknown;
  return text;
}

std::string json_of_costs(const std::vector<PlanCost>& costs, const plan::PlanRequest& request,
                          std::size_t bytes, const plan::NetworkModel& network) {
  const auto json_of = [](double latency, double per_byte) -> nlohmann::ordered_json {
    return {{"gbps", gbps_of(per_byte)}, {"latency_us", latency * 1e6}};
  };
  nlohmann::ordered_json topology{{"intra", json_of(network.latency, network.per_byte)}};
  if (network.ranks_per_node > 0) {
    topology["ranks_per_node"] = network.ranks_per_node;
    topology["inter"] = json_of(network.between_nodes.latency, network.between_nodes.per_byte);
  }
  nlohmann::ordered_json algorithms = nlohmann::ordered_json::array();
  for (const PlanCost& cost : costs) {
    nlohmann::ordered_json entry{{"algorithm", cost.algorithm->name}};
    if (cost.refusal.empty()) {
      entry["predicted_us"] = cost.seconds * 1e6;
      entry["chunks"] = cost.chunks;
      entry["messages"] = cost.messages;
      entry["bytes_between_nodes"] = cost.bytes_between_nodes;
    } else {
      entry["not_predicted"] = cost.refusal;
    }
    algorithms.push_back(std::move(entry));
  }
  const nlohmann::ordered_json json{{"collective", name_of(request.collective)},
                                    {"ranks", request.ranks},
                                    {"root", request.root},
                                    {"payload_bytes", bytes},
                                    {"topology", std::move(topology)},
                                    {"algorithms", std::move(algorithms)}};
  return tools::json_text(json, 2) + "\n";
}

}  // namespace unisono::tools
