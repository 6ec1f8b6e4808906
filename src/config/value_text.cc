// See value_text.h.
#include "config/value_text.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace unisono::config {

Status invalid(std::string_view accepted) {
  return Status(ErrorCode::kInvalidArgument, std::string(accepted));
}

std::string list_choices(std::span<const std::string_view> choices) {
  std::string list;
  for (const std::string_view choice : choices) {
    list += (list.empty() ? "" : ", ") + std::string(choice);
  }
  return list;
}

Status parse_choice(std::string_view text, std::span<const std::string_view> choices,
                    std::string* out) {
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    return invalid("one of " + list_choices(choices));
  }
  *out = std::string(text);
  return Status();
}

Status parse_bytes(std::string_view text, std::size_t* out) {
  std::size_t unit = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K':
      case 'k':
        unit = std::size_t{1} << 10;
        break;
      case 'M':
      case 'm':
        unit = std::size_t{1} << 20;
        break;
      case 'G':
      case 'g':
        unit = std::size_t{1} << 30;
        break;
    }
  }
  if (unit != 1) text.remove_suffix(1);
  std::size_t value = 0;
  constexpr std::size_t kBytesMax = std::size_t{1} << 50;
  const Status status = parse_integer<std::size_t>(text, 0, kBytesMax / unit, &value);
  if (!status) return invalid("a size such as 65536, 64K, 16M or 1G, at most 1048576G");
  *out = value * unit;
  return Status();
}

Status parse_positive_bytes(std::string_view text, std::size_t* out) {
  UNISONO_TRY(parse_bytes(text, out));
  return *out > 0 ? Status() : invalid("a size of at least 1 byte, such as 65536, 64K or 16M");
}

Status parse_duration(std::string_view text, std::chrono::milliseconds* out) {
  constexpr std::pair<std::string_view, std::int64_t> kUnits[]{
      {"ms", 1}, {"min", 60'000}, {"s", 1000}};
  std::int64_t unit = 1000;
  for (const auto& [suffix, milliseconds] : kUnits) {
    if (text.ends_with(suffix)) {
      text.remove_suffix(suffix.size());
      unit = milliseconds;
      break;
    }
  }
  // Deadlines are counted in nanoseconds from now on: far from where that overflows.
  constexpr std::int64_t kMillisecondsMax = std::int64_t{365} * 24 * 3600 * 1000;
  std::int64_t value = 0;
  const Status status = parse_integer<std::int64_t>(text, 1, kMillisecondsMax / unit, &value);
  if (!status) {
    return invalid(
        "a positive time such as 90 (seconds), 1500ms, 10s or 10min, at most 525600min (365 days)");
  }
  *out = std::chrono::milliseconds(value * unit);
  return Status();
}

std::string show_duration(std::chrono::milliseconds value) {
  const auto count = value.count();
  if (count % 60'000 == 0) return std::to_string(count / 60'000) + "min";
  if (count % 1000 == 0) return std::to_string(count / 1000) + "s";
  return std::to_string(count) + "ms";
}

Status parse_switch(std::string_view text, bool* out) {
  if (text != "on" && text != "off") return invalid("on or off");
  *out = text == "on";
  return Status();
}

Status parse_partition(std::string_view text, int* out) {
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = text.substr(hexadecimal ? 2 : 0);
  unsigned key = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), key, hexadecimal ? 16 : 10);
  // The upper bit is the membership; a partition has a number beside it.
  const bool good = error == std::errc() && end == digits.data() + digits.size() && key <= 0xffff &&
                    (key & 0x7fff) != 0;
  if (!good) return invalid("a partition key from 0x1 to 0xffff other than 0x8000");
  *out = static_cast<int>(key);
  return Status();
}

std::string show_partition(int key) {
  char text[8];
  const auto [end, error] = std::to_chars(text, text + sizeof text, key, 16);
  static_cast<void>(error);
  return "0x" + std::string(text, end);
}

Status check_devices(std::string_view text) {
  const auto is_odd = [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return !letter && !(c >= '0' && c <= '9') && c != '_' && c != '-' && c != '.';
  };
  if (text.starts_with('^')) text.remove_prefix(1);
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::string_view device = item.substr(0, item.find(':'));
    int port = 1;
    const bool has_port = device.size() < item.size();
    if (device.empty() || std::any_of(device.begin(), device.end(), is_odd) ||
        (has_port && !parse_integer(item.substr(device.size() + 1), 1, 255, &port))) {
      return invalid(
          "names of devices with or without a port (1 to 255), separated by commas, such as "
          "mlx5_0,mlx5_1:2; ^mlx5_2 for all but these");
    }
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return Status();
}

Status check_gid(std::string_view text) {
  constexpr std::string_view kWords[]{"auto", "rocev2", "rocev1", "ib"};
  if (std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords)) return Status();
  in6_addr address;
  const std::string terminated(text);
  if (inet_pton(AF_INET6, terminated.c_str(), &address) == 1) return Status();
  if (inet_pton(AF_INET, terminated.c_str(), &address) == 1) return Status();
  return invalid(
      "auto, rocev2, rocev1, ib, or an IPv4 or IPv6 address; never an index, because indices "
      "change when addresses do");
}

}  // namespace unisono::config
