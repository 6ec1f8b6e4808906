// What `unisono tune` measures: one task for each way to run a collective of one size. Values only.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "algorithms/selection.h"

namespace unisono::tune {

/// Of a task that was not measured.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

struct Task {
  algorithms::Link link = algorithms::Link::kTcp;
  Collective collective = Collective::kBarrier;
  std::size_t bytes = 0;
  std::string algorithm;  ///< "native" or a name of the catalog
  double seconds = kNever;
};

/// 64, 256, ... up to `bytes_max`.
std::vector<std::size_t> list_sizes(std::size_t bytes_max);

/// By link, since ranks choose that when they start.
std::vector<Task> list_tasks(std::span<const algorithms::Link> links, int ranks,
                             std::span<const std::size_t> sizes);

}  // namespace unisono::tune
