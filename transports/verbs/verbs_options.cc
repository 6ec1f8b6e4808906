// Checks what users say about the verbs transport, before any device is touched. Values only; any
// thread.
#include "transports/verbs/verbs_options.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "transports/verbs/hello.h"
#include "transports/verbs/rail.h"

namespace unisono::verbs {
namespace {

constexpr std::size_t kRingBytesMin = 4096;
constexpr std::size_t kRingBytesMax = std::size_t{1} << 30;

Status refused(const char* option, const std::string& value, const std::string& accepted) {
  return Status(ErrorCode::kInvalidArgument,
                "verbs option " + std::string(option) + " is " + value + "; accepted: " + accepted);
}

Status check_range(const char* option, long long value, long long low, long long high) {
  if (value >= low && value <= high) return {};
  return refused(option, std::to_string(value),
                 std::to_string(low) + " to " + std::to_string(high));
}

Status check_partition_key(int key) {
  if (key >= 0 && key <= 0xffff && (key & 0x7fff) != 0) return {};
  return refused("partition_key", std::to_string(key),
                 "1 to 65535 (0xffff), but not 32768 (0x8000); the upper bit asks for full "
                 "membership");
}

Status check_sizes(const VerbsOptions& options) {
  if (options.message_bytes_max != 0 && options.message_bytes_max < kLine) {
    return refused("message_bytes_max", std::to_string(options.message_bytes_max),
                   "0 (the port's own limit) or at least " + std::to_string(kLine));
  }
  if (options.ring_bytes < kRingBytesMin || options.ring_bytes > kRingBytesMax ||
      options.ring_bytes % kLine != 0) {
    return refused("ring_bytes", std::to_string(options.ring_bytes),
                   "a multiple of " + std::to_string(kLine) + " from " +
                       std::to_string(kRingBytesMin) + " to " + std::to_string(kRingBytesMax));
  }
  return {};
}

/// "mlx5_0" or "mlx5_0:1"; false where it is neither.
bool parse_item(std::string_view text, DeviceFilter::Item* item) {
  const std::size_t colon = text.find(':');
  item->device = std::string(text.substr(0, colon));
  item->port = 0;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), item->port);
    if (error != std::errc() || end != digits.data() + digits.size()) return false;
    if (item->port < 1 || item->port > 255) return false;
  }
  const auto is_odd = [](unsigned char letter) {
    return !std::isalnum(letter) && letter != '_' && letter != '-' && letter != '.';
  };
  return !item->device.empty() && std::none_of(item->device.begin(), item->device.end(), is_odd);
}

}  // namespace

bool DeviceFilter::admits(const std::string& device, int port) const {
  if (items.empty()) return true;
  const bool named = std::any_of(items.begin(), items.end(), [&](const Item& item) {
    return item.device == device && (item.port == 0 || item.port == port);
  });
  return named != excludes;
}

Result<DeviceFilter> parse_devices(const std::string& text) {
  DeviceFilter filter;
  if (text.empty()) return filter;
  std::string_view rest = text;
  filter.excludes = rest.front() == '^';
  if (filter.excludes) rest.remove_prefix(1);
  while (true) {
    const std::size_t comma = rest.find(',');
    DeviceFilter::Item item;
    if (!parse_item(rest.substr(0, comma), &item)) {
      return refused("devices", "'" + text + "'",
                     "names with or without a port (1 to 255), separated by commas, such as "
                     "'mlx5_0,mlx5_1:2'; '^mlx5_2' for all but these; empty for all");
    }
    filter.items.push_back(std::move(item));
    if (comma == std::string_view::npos) return filter;
    rest.remove_prefix(comma + 1);
  }
}

Result<GidWish> parse_gid(const std::string& text) {
  GidWish wish;
  if (text == "auto") return wish;
  if (text == "ib") return GidWish{IBV_GID_TYPE_IB, std::nullopt};
  if (text == "rocev1") return GidWish{IBV_GID_TYPE_ROCE_V1, std::nullopt};
  if (text == "rocev2") return GidWish{IBV_GID_TYPE_ROCE_V2, std::nullopt};
  ibv_gid address{};
  if (inet_pton(AF_INET6, text.c_str(), address.raw) == 1) {
    wish.address = address;
    return wish;
  }
  if (inet_pton(AF_INET, text.c_str(), address.raw + 12) == 1) {
    address.raw[10] = address.raw[11] = 0xff;
    wish.address = address;
    return wish;
  }
  return refused("gid", "'" + text + "'",
                 "'auto', 'rocev2', 'rocev1', 'ib', or an IPv4 or IPv6 address; never an index, "
                 "because indices change when addresses do");
}

Status check_options(const VerbsOptions& options) {
  if (options.size < 1) return refused("size", std::to_string(options.size), "at least 1");
  UNISONO_TRY(check_range("rank", options.rank, 0, options.size - 1));
  UNISONO_TRY(parse_devices(options.devices));
  UNISONO_TRY(parse_gid(options.gid));
  UNISONO_TRY(check_range("service_level", options.service_level, 0, 15));
  if (options.connect == VerbsConnect::kCm && options.service_level != 0) {
    return refused("service_level", std::to_string(options.service_level),
                   "0 with rdma_cm (UNISONO_VERBS_CONNECT=cm), where the network names the service "
                   "level of each path");
  }
  UNISONO_TRY(check_range("traffic_class", options.traffic_class, 0, 255));
  UNISONO_TRY(check_partition_key(options.partition_key));
  UNISONO_TRY(check_range("queue_pairs", options.queue_pairs, 1, kQueuePairsMax));
  UNISONO_TRY(check_range("ack_timeout", options.ack_timeout, 1, 31));
  UNISONO_TRY(check_range("retries", options.retries, 0, 6));
  return check_sizes(options);
}

}  // namespace unisono::verbs
