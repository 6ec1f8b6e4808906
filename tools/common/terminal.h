// What a command may do on the screen: colours where they are wanted, a progress line that
// overwrites itself. Nothing of it reaches a file or a pipe. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace unisono::tools {

bool is_terminal(int fd);

/// A terminal, NO_COLOR unset or empty (https://no-color.org), and TERM not "dumb".
bool wants_colour(int fd);

/// Columns of the terminal, 80 where it does not say.
int terminal_width(int fd);

enum class Colour : std::uint8_t { kRed, kGreen, kYellow, kBlue, kMagenta, kCyan, kBold, kDim };

/// `text` in `colour`, or unchanged when `wanted` is false.
std::string paint(std::string_view text, Colour colour, bool wanted);

/// One line that shows how far a long task has come and how long it will still take:
/// "  42 %  all_reduce 1M  (2 min 10 s left)". Silent unless the file is a terminal.
/// Usage: ProgressLine progress(stderr, total); progress.update(i, "size 4K"); progress.clear();
class ProgressLine {
 public:
  ProgressLine(std::FILE* file, std::uint64_t total);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { clear(); }

  /// Redraws at most ten times a second.
  void update(std::uint64_t done, std::string_view text);
  /// Wipes the line; call before printing anything else.
  void clear();

 private:
  std::FILE* file_;
  std::uint64_t total_;
  bool enabled_;
  bool shown_ = false;
  TimePoint start_;
  TimePoint redraw_;
};

/// The text of a progress line: percent, what, and the time left if it can be told.
std::string progress_text(std::uint64_t done, std::uint64_t total, double elapsed_seconds,
                          std::string_view text);

}  // namespace unisono::tools
