// Where the blocks lie in a buffer that has one of each rank. In elements.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <span>

#include "base/collective.h"
#include "unisono/call.h"

namespace unisono {

struct BlockCounts {
  std::span<const std::size_t> counts;
  std::span<const std::size_t> displacements;  ///< may be empty: the blocks lie end to end

  /// Where a block begins, the one before it ending at `before`.
  std::size_t begin(std::size_t index, std::size_t before) const {
    return displacements.empty() ? before : displacements[index];
  }
  /// The same for who has not gone through those before it.
  std::size_t begin(std::size_t index) const {
    std::size_t before = 0;
    for (std::size_t i = 0; displacements.empty() && i < index; ++i) before += counts[i];
    return begin(index, before);
  }
};

/// The blocks of a reduction lie end to end.
inline BlockCounts input_counts(const Call& call) {
  return {call.in_counts,
          reduces(call.collective) ? std::span<const std::size_t>() : call.in_displacements};
}
inline BlockCounts output_counts(const Call& call) {
  return {call.out_counts, call.out_displacements};
}

}  // namespace unisono
