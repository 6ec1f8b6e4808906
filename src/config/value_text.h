// What the texts of environment variables mean: from text to value and back. An error's message is
// what would have been accepted; the table adds the variable and its value. Values only; any
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/number_text.h"
#include "base/result.h"

namespace unisono::config {

Status invalid(std::string_view accepted);

template <typename Integer>
Status parse_integer(std::string_view text, Integer low, Integer high, Integer* out) {
  Integer value{};
  if (!read_number(text, &value) || value < low || value > high) {
    return invalid("a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  *out = value;
  return Status();
}

/// "auto, shm, tcp".
std::string list_choices(std::span<const std::string_view> choices);
Status parse_choice(std::string_view text, std::span<const std::string_view> choices,
                    std::string* out);

/// "on" or "off".
Status parse_switch(std::string_view text, bool* out);

/// "64M", "4096".
Status parse_bytes(std::string_view text, std::size_t* out);
Status parse_positive_bytes(std::string_view text, std::size_t* out);

/// "90" (seconds), "1500ms", "10s", "10min".
Status parse_duration(std::string_view text, std::chrono::milliseconds* out);
std::string show_duration(std::chrono::milliseconds value);

/// A key of an RDMA port's partition table: "0xffff", "32769".
Status parse_partition(std::string_view text, int* out);
std::string show_partition(int key);

/// "mlx5_0,mlx5_1:2" or "^mlx5_2": the form alone; which devices there are is not known here.
Status check_devices(std::string_view text);
/// "auto", "rocev2", "rocev1", "ib" or an IPv4 or IPv6 address.
Status check_gid(std::string_view text);

}  // namespace unisono::config
