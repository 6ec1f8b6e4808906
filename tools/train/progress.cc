#include "tools/train/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/common/sizes.h"

namespace unisono::train {
namespace {

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(2);
// Up to the line, to its beginning, wiped. Whole lines, because between this and the terminal may
// be a launcher that passes on whole lines.
constexpr const char* kWipe = "\033[1A\r\033[K";

}  // namespace

std::string grouped(double number) {
  std::string digits = fmt::format("{}", std::llround(std::clamp(number, 0.0, 1e15)));
  for (std::size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, ",");
  return digits;
}

std::string to_string(const ProgressState& state) {
  return fmt::format("epoch {}/{}  step {}/{}  {} samples/s  loss {:.4f}  {} left", state.epoch,
                     state.epochs, state.step, state.steps, grouped(state.samples_per_second),
                     state.loss, tools::format_duration(state.seconds_left));
}

void Progress::update(const ProgressState& state) {
  if (style_ == Style::kSilent) return;
  const TimePoint now = Clock::now();
  if (style_ == Style::kPlain && next_ == TimePoint{}) next_ = now + kLineEvery;
  if (now < next_) return;
  std::string line = to_string(state);
  if (style_ == Style::kPlain) {
    next_ = now + kLineEvery;
    fmt::print(stderr, "{}\n", line);
    return;
  }
  next_ = now + kRedrawEvery;
  // A line that wraps cannot be wiped.
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(columns_, 2) - 1)));
  fmt::print("{}{}\n", is_shown_ ? kWipe : "", line);
  std::fflush(stdout);
  is_shown_ = true;
}

void Progress::clear() {
  if (!is_shown_) return;
  std::fputs(kWipe, stdout);
  std::fflush(stdout);
  is_shown_ = false;
}

}  // namespace unisono::train
