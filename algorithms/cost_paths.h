// What follows one another on the critical path of a call. Pure; safe from any thread.
#pragma once

#include "algorithms/algorithm.h"

namespace unisono::algorithms {

/// The path is what the busiest rank sends, in so many messages, and `extra_bytes` that others
/// send.
inline Cost with_sender_path(Cost cost, int messages, double extra_bytes = 0) {
  cost.path_messages = messages;
  cost.path_bytes = cost.bytes_sent + extra_bytes;
  return cost;
}

/// Through a chain of ranks, one chunk after the other.
inline Cost with_chain_path(Cost cost, int ranks, int chunks, std::size_t bytes) {
  if (ranks == 1) return cost;
  cost.path_messages = ranks - 2 + chunks;
  cost.path_bytes = static_cast<double>(bytes) * cost.path_messages / chunks;
  return cost;
}

}  // namespace unisono::algorithms
