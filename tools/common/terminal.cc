#include "tools/common/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "tools/common/environment.h"
#include "tools/common/sizes.h"

namespace unisono::tools {
namespace {

constexpr std::string_view code_of(Colour colour) {
  switch (colour) {
    case Colour::kRed:
      return "31";
    case Colour::kGreen:
      return "32";
    case Colour::kYellow:
      return "33";
    case Colour::kBlue:
      return "34";
    case Colour::kMagenta:
      return "35";
    case Colour::kCyan:
      return "36";
    case Colour::kBold:
      return "1";
    case Colour::kDim:
      return "2";
  }
  return "0";
}

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool wants_colour(int fd) {
  if (!is_terminal(fd)) return false;
  const auto no_colour = environment_value("NO_COLOR");
  if (no_colour && !no_colour->empty()) return false;
  return environment_value("TERM").value_or("") != "dumb";
}

int terminal_width(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string paint(std::string_view text, Colour colour, bool wanted) {
  if (!wanted) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", code_of(colour), text);
}

std::string progress_text(std::uint64_t done, std::uint64_t total, double elapsed_seconds,
                          std::string_view text) {
  if (total == 0) return std::string(text);
  done = std::min(done, total);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  std::string out = fmt::format("{:4.0f} %  {}", 100 * share, text);
  if (done > 0 && done < total) {
    out += fmt::format("  ({} left)", format_duration(elapsed_seconds * (1 - share) / share));
  }
  return out;
}

ProgressLine::ProgressLine(std::FILE* file, std::uint64_t total)
    : file_(file), total_(total), enabled_(is_terminal(::fileno(file))), start_(Clock::now()) {}

void ProgressLine::update(std::uint64_t done, std::string_view text) {
  if (!enabled_) return;
  const TimePoint now = Clock::now();
  if (now < redraw_) return;
  redraw_ = now + kRedrawEvery;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  std::string line = progress_text(done, total_, elapsed, text);
  // A line that wraps cannot be wiped with one carriage return.
  const auto width = static_cast<std::size_t>(std::max(terminal_width(::fileno(file_)), 2) - 1);
  if (line.size() > width) line.resize(width);
  fmt::print(file_, "\r\033[K{}", line);
  std::fflush(file_);
  shown_ = true;
}

void ProgressLine::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", file_);
  std::fflush(file_);
  shown_ = false;
}

}  // namespace unisono::tools
