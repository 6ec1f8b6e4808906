#include "tools/common/sizes.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

#include "tools/common/invalid.h"

namespace unisono::tools {
namespace {

constexpr std::string_view kSuffixes = "KMGT";

Status bad_value(std::string_view what, std::string_view text, std::string_view expected) {
  return invalid("{}: '{}' is not {}", what, text.substr(0, 64), expected);
}

// Bits to shift for a unit, or -1. Takes "", "B", "K", "KB", "KiB" and so on in either case.
int shift_of(std::string_view unit) {
  if (unit.empty() || unit == "B" || unit == "b") return 0;
  const char letter = static_cast<char>(std::toupper(static_cast<unsigned char>(unit.front())));
  const std::size_t index = kSuffixes.find(letter);
  if (index == std::string_view::npos) return -1;
  const std::string_view rest = unit.substr(1);
  const bool known = rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "ib";
  return known ? static_cast<int>(10 * (index + 1)) : -1;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text, std::string_view what, SizeBounds bounds) {
  constexpr std::string_view kExpected = "a size such as 4, 64K, 1M or 2G";
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::invalid_argument) return bad_value(what, text, kExpected);
  const int shift = shift_of(std::string_view(stop, static_cast<std::size_t>(end - stop)));
  if (shift < 0) return bad_value(what, text, kExpected);
  const bool overflow = error == std::errc::result_out_of_range ||
                        number > (std::numeric_limits<std::uint64_t>::max() >> shift);
  const std::uint64_t bytes = overflow ? 0 : number << shift;
  if (overflow || bytes < bounds.min || bytes > bounds.max) {
    return invalid("{}: {} is outside {} to {}", what, text.substr(0, 64), format_bytes(bounds.min),
                   format_bytes(bounds.max));
  }
  return bytes;
}

Result<std::int64_t> parse_integer(std::string_view text, std::string_view what, std::int64_t min,
                                   std::int64_t max) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const bool range_error = error == std::errc::result_out_of_range;
  if (stop != end || error == std::errc::invalid_argument) {
    return bad_value(what, text, "a whole number");
  }
  if (range_error || number < min || number > max) {
    return invalid("{}: {} is outside {} to {}", what, text.substr(0, 64), min, max);
  }
  return number;
}

Result<double> parse_seconds(std::string_view text, std::string_view what, double max) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || stop != end || !std::isfinite(number)) {
    return bad_value(what, text, "a number of seconds such as 5 or 0.5");
  }
  if (number < 0 || number > max) {
    return invalid("{}: {} s is outside 0 to {} s", what, number, max);
  }
  return number;
}

std::string format_bytes(std::uint64_t bytes) {
  std::size_t suffixes = 0;
  while (suffixes < kSuffixes.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++suffixes;
  }
  std::string out = fmt::format("{}", bytes);
  if (suffixes > 0) out += kSuffixes[suffixes - 1];
  return out;
}

std::string format_bytes_rounded(double bytes) {
  std::size_t suffixes = 0;
  // 1023.95 is where "%.1f" would print 1024.0 of the smaller unit.
  while (suffixes < kSuffixes.size() && bytes >= 1023.95) {
    bytes /= 1024;
    ++suffixes;
  }
  if (suffixes == 0) return fmt::format("{:.0f} B", bytes);
  return fmt::format("{:.1f} {}iB", bytes, kSuffixes[suffixes - 1]);
}

std::string format_duration(double seconds) {
  if (seconds < 0 || !std::isfinite(seconds)) return "unknown";
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.3g} s", seconds);
  constexpr double kYear = 365.0 * 24 * 3600;
  if (seconds > kYear) return "over a year";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace unisono::tools
