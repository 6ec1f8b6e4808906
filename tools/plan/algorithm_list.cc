#include "tools/plan/algorithm_list.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/collective.h"
#include "tools/common/invalid.h"
#include "tools/common/json_text.h"
#include "tools/common/table.h"

namespace unisono::tools {
namespace {

using algorithms::Algorithm;

// What must hold for an algorithm, found by asking it: it refuses requests that it cannot serve.
struct Needs {
  std::string ranks = "any";  // or "power of two"
  bool commutative = false;   // the operator must be
  std::string canonical =
      "yes";  // order: "no", "power of two" ranks; empty where nothing is reduced
};

Needs needs_of(const Algorithm& algorithm) {
  const auto serves = [&](int ranks, bool commutative, Order order) {
    plan::PlanRequest request;
    request.collective = algorithm.collective;
    request.ranks = ranks;
    request.commutative = commutative;
    request.order = order;
    return algorithm.refuses(request).empty();
  };
  Needs needs;
  if (!serves(3, true, Order::kAny)) needs.ranks = "power of two";
  if (!facts_of(algorithm.collective).reduces) {
    needs.canonical.clear();
    return needs;
  }
  needs.commutative = !serves(4, false, Order::kAny);
  if (!serves(4, true, Order::kCanonical)) {
    needs.canonical = "no";
  } else if (!serves(3, true, Order::kCanonical)) {
    needs.canonical = "power of two";
  }
  return needs;
}

}  // namespace

std::string names_of_collectives() {
  std::string names;
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (algorithms::names_of(collective).empty()) continue;
    names += (names.empty() ? "" : ", ") + std::string(name_of(collective));
  }
  return names;
}

Result<Collective> parse_collective(const std::string& name) {
  Collective collective{};
  if (parse(name, &collective) && !algorithms::names_of(collective).empty()) return collective;
  return invalid("no collective is called '{}'; choose one of: {}", name, names_of_collectives());
}

Result<std::string> list_algorithms(const std::string& collective, bool as_json) {
  std::optional<Collective> only;
  if (!collective.empty()) {
    UNISONO_ASSIGN(only, parse_collective(collective));
  }
  Table table({{"collective", Align::kLeft},
               {"algorithm", Align::kLeft},
               {"ranks", Align::kLeft},
               {"operator", Align::kLeft},
               {"canonical order", Align::kLeft}});
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Algorithm& algorithm : algorithms::catalog()) {
    if (only && algorithm.collective != *only) continue;
    const Needs needs = needs_of(algorithm);
    const bool reduces = !needs.canonical.empty();
    table.add_row({std::string(name_of(algorithm.collective)), std::string(algorithm.name),
                   needs.ranks,
                   !reduces            ? "-"
                   : needs.commutative ? "commutative"
                                       : "any",
                   reduces ? needs.canonical : "-"});
    nlohmann::ordered_json entry{{"collective", name_of(algorithm.collective)},
                                 {"algorithm", algorithm.name},
                                 {"needs_power_of_two_ranks", needs.ranks != "any"}};
    if (reduces) entry["needs_commutative"] = needs.commutative;
    if (reduces) entry["canonical_order"] = needs.canonical;
    json.push_back(std::move(entry));
  }
  if (as_json) return json_text(json, 2);
  return table.text() +
         "\nBeside these every collective has `native`: between ranks that share a host's memory, "
         "for all\nranks, operators and orders. It has no plan to print.";
}

}  // namespace unisono::tools
