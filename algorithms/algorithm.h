// An algorithm: a pure function PlanRequest -> Plan, with what is needed to choose and cost it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace unisono::algorithms {

/// Work of the busiest rank, for `bytes` of payload as nccl-tests count them.
struct Cost {
  int rounds = 0;         ///< messages on the critical path of one chunk
  double bytes_sent = 0;  ///< per rank, on the wire
  double bytes_reduced = 0;
  // Of all chunks, what follows one another on the critical path; 0 where nobody has worked it out:
  // double binary trees, whose two halves meet on the links.
  int path_messages = 0;
  double path_bytes = 0;
};

struct Algorithm {
  std::string_view name;  ///< "ring"
  Collective collective;
  /// Order::kCanonical holds for this algorithm (at the rank counts that supports() accepts).
  bool canonical;
  /// Empty when it can serve the request, else the reason ("needs a power of two ranks").
  std::string_view (*refuses)(const plan::PlanRequest& request);
  plan::Plan (*build)(const plan::PlanRequest& request);
  Cost (*cost)(int ranks, int chunks, std::size_t bytes);
};

/// Every algorithm, grouped by collective.
std::span<const Algorithm> catalog();
/// nullptr when there is none of that name.
const Algorithm* find(Collective collective, std::string_view name);
/// "ring, recursive_doubling, ..." for messages.
std::string names_of(Collective collective);

}  // namespace unisono::algorithms
