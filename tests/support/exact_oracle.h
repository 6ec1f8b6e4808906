// What the exact order must give: sums of integers as long as they have to be, rounded once. For
// tests only; uses nothing of src/compute, which it judges.
#pragma once

#include <span>

#include "unisono/types.h"

namespace unisono::exact_test {

/// The value of `type` (fp32, fp16 or bf16) that the exact sum of `addends`, all of them values of
/// that type, rounds to: to nearest, ties to even, too large is infinity. NaN where one is NaN or
/// both infinities are there; -0 where all addends are -0.
double rounded_sum(DataType type, std::span<const double> addends);

}  // namespace unisono::exact_test
