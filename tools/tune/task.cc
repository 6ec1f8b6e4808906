#include "tools/tune/task.h"

#include <algorithm>

namespace unisono::tune {
namespace {

// Scans and collectives of uneven blocks keep the default rows: nothing here is typical of them.
constexpr Collective kTuned[]{
    Collective::kAllReduce,     Collective::kReduce, Collective::kBroadcast, Collective::kAllGather,
    Collective::kReduceScatter, Collective::kGather, Collective::kScatter,   Collective::kAllToAll};

std::vector<std::string> algorithms_of(Collective collective, int ranks, bool native) {
  std::vector<std::string> names;
  if (native) names.push_back("native");
  plan::PlanRequest request;
  request.collective = collective;
  request.ranks = ranks;
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    if (algorithm.collective != collective || !algorithm.refuses(request).empty()) continue;
    names.emplace_back(algorithm.name);
  }
  return names;
}

}  // namespace

std::vector<std::size_t> list_sizes(std::size_t bytes_max) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 64; bytes <= bytes_max; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

std::vector<Task> list_tasks(std::span<const algorithms::Link> links, int ranks,
                             std::span<const std::size_t> sizes) {
  std::vector<Task> tasks;
  for (const algorithms::Link link : links) {
    const bool native = link == algorithms::Link::kShm;
    for (const std::string& name : algorithms_of(Collective::kBarrier, ranks, native)) {
      tasks.push_back({link, Collective::kBarrier, 0, name});
    }
    for (const Collective collective : kTuned) {
      for (const std::size_t bytes : sizes) {
        for (const std::string& name : algorithms_of(collective, ranks, native)) {
          tasks.push_back({link, collective, bytes, name});
        }
      }
    }
  }
  return tasks;
}

}  // namespace unisono::tune
