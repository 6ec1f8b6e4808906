// Which reductions Order::kExact changes.
#pragma once

#include "unisono/types.h"

namespace unisono {

/// Whether the result is a sum that can be rounded once; all others are canonical in that order.
constexpr bool has_exact_sums(DataType type, OpKind op) {
  const bool sums = op == OpKind::kSum || op == OpKind::kAverage || op == OpKind::kPremultipliedSum;
  return sums &&
         (type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16);
}

}  // namespace unisono
