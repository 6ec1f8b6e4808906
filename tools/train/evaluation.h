// The test: every sample exactly once, whatever the number of ranks.
#pragma once

#include <cstddef>

#include "tools/train/strategy.h"
#include "unisono/communicator.h"
#include "unisono/train/loader.h"

namespace unisono::train {

struct TestResult {
  double loss = 0, accuracy = 0;  ///< accuracy from 0 to 1
  std::size_t samples = 0;        ///< of all ranks
};

/// Collective. `loader` deals this rank's samples by an EvaluationSampler.
TestResult evaluate(Strategy& strategy, Loader& loader, Communicator& communicator);

}  // namespace unisono::train
