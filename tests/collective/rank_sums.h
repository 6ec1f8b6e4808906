// Buffers whose sum over all ranks is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/types.h"

namespace unisono::test {

inline std::vector<std::int64_t> filled(Rank rank, std::size_t count) {
  return std::vector<std::int64_t>(count, rank + 1);
}
inline std::vector<std::int64_t> total(int ranks, std::size_t count) {
  return std::vector<std::int64_t>(count, ranks * (ranks + 1) / 2);
}

}  // namespace unisono::test
