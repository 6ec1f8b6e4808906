// Reductions for tests whose subject is what they compute.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "compute/compute.h"

namespace unisono::compute_test {

inline compute::Reduction reduction_of(DataType type, const ReduceOp& op, int ranks = 1) {
  auto made = compute::Reduction::make(type, op, ranks);
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

}  // namespace unisono::compute_test
