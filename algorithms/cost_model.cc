#include "algorithms/cost_model.h"

#include <algorithm>

namespace unisono::algorithms {
namespace {

// What a rank spends at most on one more message of a pipeline: two system calls and the engine's
// share.
constexpr double kMessageUs = 5;
// Shorter ones cost more than they gain, whatever the link.
constexpr std::size_t kChunkBytesMin = 4096;
// See chunk_bytes_within().
constexpr double kChunkUsMax = 2000;
constexpr std::size_t kRingChunkBytesMin = 64 * 1024;

Prediction best_of(const Algorithm& algorithm, int ranks, std::size_t bytes,
                   const LinkFacts& links) {
  Prediction best;
  for (int chunks = 1; chunks <= kChunksMax; chunks *= 2) {
    if (chunks > 1 && bytes / static_cast<std::size_t>(chunks) < kChunkBytesMin) break;
    const double us = predict_us(algorithm.cost(ranks, chunks, bytes), links);
    if (best.algorithm == nullptr || us < best.us) best = {&algorithm, chunks, us};
  }
  return best;
}

template <typename Take>
void for_each_way(const plan::PlanRequest& request, std::size_t bytes, const LinkFacts& links,
                  const Take& take) {
  if (!is_predicted(request.collective)) return;
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != request.collective || !algorithm.refuses(request).empty()) continue;
    if (algorithm.cost(request.ranks, 1, bytes).path_messages == 0) continue;
    take(best_of(algorithm, request.ranks, bytes, links));
  }
}

}  // namespace

std::size_t chunk_bytes_within(std::size_t bytes_max, const LinkFacts& links) {
  const double carried = links.bytes_per_us * kChunkUsMax;
  if (!links.are_known() || carried >= static_cast<double>(bytes_max)) return bytes_max;
  return std::min(bytes_max, std::max(static_cast<std::size_t>(carried), kRingChunkBytesMin));
}

double predict_us(const Cost& cost, const LinkFacts& links) {
  const double message_us = std::min(kMessageUs, links.latency_us);
  return cost.rounds * links.latency_us + (cost.path_messages - cost.rounds) * message_us +
         cost.path_bytes / links.bytes_per_us;
}

Prediction predict_fastest(const plan::PlanRequest& request, std::size_t bytes,
                           const LinkFacts& links) {
  Prediction fastest;
  for_each_way(request, bytes, links, [&](const Prediction& way) {
    if (fastest.algorithm == nullptr || way.us < fastest.us) fastest = way;
  });
  return fastest;
}

std::vector<Prediction> predict(const plan::PlanRequest& request, std::size_t bytes,
                                const LinkFacts& links) {
  std::vector<Prediction> ways;
  for_each_way(request, bytes, links, [&](const Prediction& way) { ways.push_back(way); });
  std::stable_sort(ways.begin(), ways.end(),
                   [](const Prediction& a, const Prediction& b) { return a.us < b.us; });
  return ways;
}

}  // namespace unisono::algorithms
