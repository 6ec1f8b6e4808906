// How RDMA devices, ports and paths are chosen, and how patient they are: UNISONO_VERBS_*. Values
// only; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace unisono {

/// Where the paths between ports come from: what both ends say in their hellos, or rdma_cm, which
/// asks the network. Connections are made by hellos in either case.
enum class VerbsConnect : std::uint8_t { kExchange, kCm };

/// By VerbsConnect.
inline constexpr std::array<std::string_view, 2> kVerbsConnectNames{"exchange", "cm"};

/// Defaults suit a cluster.
struct VerbsSetting {
  /// "mlx5_0,mlx5_1:2": these devices or device:port only; "^mlx5_2": all but these; empty: all.
  std::string devices;
  /// "auto", a type ("rocev2", "rocev1", "ib") or an address that the GID must carry
  /// ("10.1.2.3", "fd00::7"). Never a number: numbers change when addresses do.
  std::string gid = "auto";
  VerbsConnect connect = VerbsConnect::kExchange;
  int service_level = 0;         ///< 0..15
  int traffic_class = 0;         ///< 0..255; RoCE: DSCP in its upper six bits
  int partition_key = 0xffff;    ///< looked for in the port's table; the upper bit is membership
  int queue_pairs = 1;           ///< per port and peer; large frames are striped over all
  int ack_timeout = 14;          ///< 4.096 us * 2^this, 1..31
  int retries = 6;               ///< 0..6 (7 is infinite with some providers)
  bool relaxed_ordering = true;  ///< where the device offers it
  std::size_t registered_bytes_max = std::size_t{4} << 30;  ///< of users' memory kept registered
};

}  // namespace unisono
