// For whom an operation waits, as a value.
#pragma once

#include <vector>

#include "engine/operation.h"

namespace unisono::test {

inline std::vector<Rank> awaited_by(const Operation& operation) {
  std::vector<Rank> ranks;
  operation.waiting_for(&ranks);
  return ranks;
}

}  // namespace unisono::test
