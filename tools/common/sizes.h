// Numbers as people type and read them on the command line: "1M", "64K", "4", "2.5".
// Pure functions, safe from any thread.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/result.h"

namespace unisono::tools {

struct SizeBounds {
  std::uint64_t min = 0;
  std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
};

/// Bytes: digits and an optional suffix K, M, G or T (powers of 1024, either case, "KB" and "KiB"
/// mean the same). `what` names the value in the error: "--max-bytes".
Result<std::uint64_t> parse_bytes(std::string_view text, std::string_view what,
                                  SizeBounds bounds = {});

/// A plain decimal integer inside [min, max].
Result<std::int64_t> parse_integer(std::string_view text, std::string_view what, std::int64_t min,
                                   std::int64_t max);

/// A plain decimal number of seconds, "5" or "0.25", inside [0, max].
Result<double> parse_seconds(std::string_view text, std::string_view what, double max);

/// "1 rank", "3 ranks".
template <std::integral Count>
std::string counted(Count count, std::string_view one, std::string_view several) {
  return std::to_string(count).append(1, ' ').append(count == 1 ? one : several);
}

/// Exact, and accepted by parse_bytes: the largest suffix that divides, "64K", "1M", "1000".
std::string format_bytes(std::uint64_t bytes);

/// Rounded for reading: "1.5 MiB", "999 B".
std::string format_bytes_rounded(double bytes);

/// Rounded for reading: "850 us", "1.25 s", "3 min 20 s", "2 h 05 min".
std::string format_duration(double seconds);
inline std::string format_duration(std::chrono::duration<double> time) {
  return format_duration(time.count());
}

}  // namespace unisono::tools
