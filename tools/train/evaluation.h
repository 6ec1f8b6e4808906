// The test: every sample exactly once, whatever the number of ranks.
#pragma once

#include <cstddef>

#include "tools/train/strategy.h"
#include "unisono/communicator.h"
#include "unisono/train/loader.h"

namespace unisono::train {

struct TestResult {
  double loss = 0;          ///< of all targets, padding too, as in training
  double accuracy = 0;      ///< from 0 to 1, of what is not padding
  std::size_t samples = 0;  ///< of all ranks
};

/// Collective. `loader` deals this rank's samples of `data` by an EvaluationSampler.
TestResult evaluate(Strategy& strategy, Loader& loader, const Dataset& data,
                    Communicator& communicator);

}  // namespace unisono::train
