// How far training has come: on a terminal one line that is written over, elsewhere a line now and
// then. One thread; rank 0 has one.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"

namespace unisono::train {

struct ProgressState {
  std::size_t epoch = 0, epochs = 0;  ///< epoch from 1 on
  std::size_t step = 0, steps = 0;    ///< of the epoch, from 1 on
  double samples_per_second = 0, seconds_left = 0;
  double loss = 0;       ///< running mean of the epoch
  double step_loss = 0;  ///< of this step alone
};
/// "epoch 2/5  step 120/468  31,250 samples/s  loss 0.412  4.1 s left".
std::string to_string(const ProgressState& state);

/// A number with its thousands apart: "31,250".
std::string grouped(double number);

class Progress {
 public:
  enum class Style {
    kSilent,
    kPlain,  ///< on standard error, every two seconds, not at once
    kLive,   ///< on standard output, which is a terminal
  };
  /// `columns` of the terminal.
  Progress(Style style, int columns) : style_(style), columns_(columns) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  void update(const ProgressState& state);
  /// Wipes the live line; call before printing anything else.
  void clear();

 private:
  Style style_;
  int columns_;
  bool is_shown_ = false;
  TimePoint next_{};
};

}  // namespace unisono::train
