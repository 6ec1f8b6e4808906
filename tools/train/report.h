// What rank 0 tells: lines for people or JSON on standard output, and the log in the folder. The
// other ranks have a silent one. One thread.
#pragma once

#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/train/batch_memory.h"
#include "tools/train/charts.h"
#include "tools/train/costs.h"
#include "tools/train/evaluation.h"
#include "tools/train/options.h"
#include "tools/train/placement.h"
#include "tools/train/progress.h"
#include "unisono/train/model.h"

namespace unisono::train {

struct EpochResult {
  std::size_t epoch = 0;  ///< trained so far, from 1 on
  std::size_t steps = 0;  ///< of these ranks; 0: others have taken them, and know the loss
  double train_loss = 0, seconds = 0;  ///< seconds of the steps, without the test
  double samples_per_second = 0;
  TestResult test;
};

class Report {
 public:
  /// std::runtime_error where the log cannot be opened.
  Report(const Options& options, int rank);

  /// A resumed training draws the epochs of the log up to this one too, and ends with the last of
  /// them where it trains none.
  void go_on(std::size_t epochs);
  /// `scaled_rate`: the learning rate after the warm-up.
  void start(const Model& model, const std::string& data, const std::string& communicator,
             float scaled_rate);
  /// False on ranks whose words nobody sees.
  bool speaks() const { return !is_silent_; }
  void seats(const std::vector<Seat>& seats);
  void batches(const BatchMemory& memory, const CopyTimes& times, std::size_t bytes_of_one);
  void loaded(const std::vector<LoadCost>& costs);
  /// A warning: to standard error, and to the log; with --json to the log's lines alone.
  void note(const std::string& sentence);
  void step(const ProgressState& state);
  void epoch(const EpochResult& result);
  /// Draws the charts too. `seconds` of the whole command.
  void end(const std::vector<TrainCost>& costs, std::size_t steps, double seconds);

 private:
  void print(const std::string& line);
  void log(const nlohmann::ordered_json& line);
  void print_costs(const std::vector<TrainCost>& costs, std::size_t steps);
  void add_to_curve(const ProgressState& state);

  const Options& options_;
  bool is_silent_;
  std::ofstream log_;
  Progress progress_;
  ChartData charts_;
  double block_sum_ = 0;
  std::size_t block_steps_ = 0;
  EpochResult last_;
};

}  // namespace unisono::train
