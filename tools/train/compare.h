// `unisono train --compare`: every strategy on the same model and data, what each moves and takes,
// and what the theory says of it.
#pragma once

#include <cstddef>

#include "tools/train/options.h"

namespace unisono::train {

struct CompareOptions {
  /// Model, data, batch, devices (their number is that of the ranks too; none are two), first
  /// batch, transport of the ranks, rate, optimizer, seed, json, quiet.
  Options training;
  std::size_t steps = 100;  ///< counted, of each strategy
  std::size_t warm_up = 3;  ///< before them; at least 2
};

/// Prints tables, or JSON lines. Returns the exit status: 0, 1 where a measured byte differs from
/// the theory or something failed, 2 for options that mean nothing.
int compare_main(const CompareOptions& options);

}  // namespace unisono::train
