// Keeps strangers from filling the log: a burst of lines, then one every so often, which says how
// many were left out.
//
// Thread rule: its owner's.
#pragma once

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace unisono {

class LineLimit {
 public:
  LineLimit(int burst, Duration every) : burst_(burst), every_(every), lines_left_(burst) {}

  void write(log::Level level, TimePoint now, const std::string& line) {
    pass(now, line, [level](const std::string& text) { log::write(level, text); });
  }

  /// The same where `sink` writes.
  template <typename Sink>
  void pass(TimePoint now, const std::string& line, const Sink& sink) {
    const auto earned = (now - filled_) / every_;
    if (earned > 0) {
      lines_left_ = static_cast<int>(std::min<long long>(burst_, lines_left_ + earned));
      filled_ = now;
    }
    if (lines_left_ == 0) {
      ++left_out_;
      return;
    }
    --lines_left_;
    const std::string more =
        left_out_ == 0 ? "" : " (" + std::to_string(left_out_) + " more such lines left out)";
    left_out_ = 0;
    sink(line + more);
  }

 private:
  const int burst_;
  const Duration every_;
  TimePoint filled_{};
  int lines_left_;
  long long left_out_ = 0;
};

}  // namespace unisono
