// How long a call takes between ranks that are on hosts of their own, from two facts about their
// links: which algorithm, and in how many chunks. Latency and bandwidth as in R. W. Hockney,
// Parallel Computing 20 (1994), with the further messages of a pipeline at what a rank spends on
// each.
//
// Thread rule: pure.
#pragma once

#include <cstddef>
#include <vector>

#include "algorithms/algorithm.h"

namespace unisono::algorithms {

/// Of the slowest link between two ranks, each on a host of its own; the same on all ranks.
struct LinkFacts {
  double latency_us = 0;    ///< of a short message, one way, both ranks' work included
  double bytes_per_us = 0;  ///< of a long one; 0: not known

  bool are_known() const { return bytes_per_us > 0; }
};

/// Of a block.
inline constexpr int kChunksMax = 64;

/// One way to run a call.
struct Prediction {
  const Algorithm* algorithm = nullptr;
  int chunks = 1;
  double us = 0;
};

/// Whether the model decides: where measuring has shown that it is no worse than the table. Almost
/// every algorithm's cost has a path, but for the other collectives nobody has measured it.
constexpr bool is_predicted(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce;
}

/// Into what a block is cut that goes around the ranks: no more than the link carries in 2 ms, so
/// that a rank which gets its core late holds up one chunk and not the line. At most `bytes_max`,
/// the table's; at least 64 KiB, if that is.
std::size_t chunk_bytes_within(std::size_t bytes_max, const LinkFacts& links);

/// Of an algorithm whose cost has a path.
double predict_us(const Cost& cost, const LinkFacts& links);

/// The first of predict(); without algorithm where that is empty. Allocates nothing.
Prediction predict_fastest(const plan::PlanRequest& request, std::size_t bytes,
                           const LinkFacts& links);

/// The algorithms of the request's collective that serve it, each with the number of chunks that
/// suits it best, the fastest first. Empty where !is_predicted().
std::vector<Prediction> predict(const plan::PlanRequest& request, std::size_t bytes,
                                const LinkFacts& links);

}  // namespace unisono::algorithms
