// What ranks have for each other in native calls: any rank can compute it for every other. Pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unisono::test {

/// What ranks [first, last) have for `target` (or for all: target 0) in a call, summed.
struct NativeSum {
  std::uint32_t call = 0;
  int first = 0, last = 0;
  int target = 0;
};

/// Its elements [first, first + count).
std::vector<std::int32_t> elements_of(const NativeSum& sum, std::size_t first, std::size_t count);

}  // namespace unisono::test
