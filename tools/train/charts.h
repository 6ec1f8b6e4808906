// The curve of loss and accuracy and the chart of communication, drawn by gnuplot from data files
// that stay beside them. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/train/costs.h"

namespace unisono::train {

struct CurvePoint {
  double epoch = 0;  ///< fractional
  double loss = 0;
};
struct EpochPoint {
  double epoch = 0;
  double test_loss = 0, accuracy = 0;
};

struct ChartData {
  std::string title;  ///< "mlp 784-256-10, ddp, 2 ranks"
  std::vector<CurvePoint> curve;
  std::vector<EpochPoint> epochs;
  std::vector<TrainCost> costs;
  std::size_t steps = 0;
};

/// Those of a run before.
void remove_charts(const std::string& folder);

/// Writes curve*.* and communication.* into `folder`, and removes those that it does not write.
/// What a person should know afterwards, one sentence each: which files there are, or that gnuplot
/// is missing (nothing else is lost then). std::runtime_error when a file cannot be written.
std::vector<std::string> draw_charts(const std::string& folder, const ChartData& data);

}  // namespace unisono::train
