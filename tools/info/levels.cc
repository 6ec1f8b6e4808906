#include "tools/info/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "native/levels.h"
#include "tools/common/sizes.h"
#include "topology/processors.h"

namespace unisono::info {
namespace {

using topology::Core;
using topology::Processors;

// The cores of each cache or node that is known.
std::vector<int> count_cores(const Processors& processors, int Core::*domain) {
  std::map<int, int> counts;
  for (const Core& core : processors.cores) {
    if (core.*domain >= 0) ++counts[core.*domain];
  }
  std::vector<int> cores;
  for (const auto& [number, count] : counts) cores.push_back(count);
  return cores;
}

std::string describe(const std::vector<int>& cores, const char* one, const char* several) {
  if (cores.empty()) return fmt::format("no {} known", one);
  const bool is_even =
      std::count(cores.begin(), cores.end(), cores[0]) == static_cast<std::ptrdiff_t>(cores.size());
  std::string sizes;
  for (std::size_t i = 0; i < (is_even ? 1 : cores.size()); ++i) {
    sizes += fmt::format("{}{}", i == 0 ? "" : ", ", cores[i]);
  }
  return fmt::format("{} of {} {}", tools::counted(cores.size(), one, several), sizes,
                     sizes == "1" ? "core" : "cores");
}

const char* name_of_domains(LevelsBy by) {
  switch (by) {
    case LevelsBy::kNodes:
      return "those of a NUMA node";
    case LevelsBy::kCaches:
      return "those that share a third-level cache";
    default:
      return "which follow each other";
  }
}

}  // namespace

bool has_levels(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce;
}

std::string describe_levels() {
  const Result<Processors> processors = topology::read_processors();
  if (!processors) return processors.error().message();
  return describe(count_cores(*processors, &Core::numa_node), "NUMA node", "NUMA nodes") + ", " +
         describe(count_cores(*processors, &Core::cache), "third-level cache",
                  "third-level caches");
}

nlohmann::ordered_json json_of_levels() {
  const Result<Processors> processors = topology::read_processors();
  if (!processors) return {{"reason", processors.error().message()}};
  return {{"nodes", count_cores(*processors, &Core::numa_node)},
          {"caches", count_cores(*processors, &Core::cache)}};
}

std::string explain_levels(const Config& config, int ranks) {
  const Result<Processors> processors = topology::read_processors();
  std::vector<Place> places(static_cast<std::size_t>(ranks));
  for (int rank = 0; processors && rank < ranks; ++rank) {
    const std::vector<int> cores =
        topology::recommended_binding(*processors, rank, ranks, topology::Width::kShare);
    places[static_cast<std::size_t>(rank)] = topology::place_of(*processors, cores);
  }
  const native::Levels levels = native::levels_of(places, config.levels);
  const bool is_exact = config.order == Order::kExact;
  const std::string setting = "UNISONO_LEVELS=" + text_of(config.levels);
  if (levels.domain_ranks == 0) {
    return "where it is long it goes in one level: the ranks, bound as `unisono run` binds them, "
           "are not to be grouped (" +
           setting + ")";
  }
  const bool is_counted = levels.by == LevelsBy::kCount;
  return fmt::format("where it is long it goes in two levels: {} domains of {} ranks, {}{}{} ({})",
                     ranks / levels.domain_ranks, levels.domain_ranks, name_of_domains(levels.by),
                     is_counted ? "" : ", if they are bound as `unisono run` binds them",
                     is_exact ? "; sums in the exact order in one" : "", setting);
}

}  // namespace unisono::info
