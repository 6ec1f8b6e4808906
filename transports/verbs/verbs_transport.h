// Frames over InfiniBand verbs (InfiniBand and RoCE): reliable connected queue pairs, small frames
// by RDMA write into a ring at the peer, large ones by RDMA read straight into their destination.
// A stream transport beside it authenticates peers, carries the hello of every link and stands in
// for peers that verbs cannot reach. Made by a rank's engine and used by one thread at a time;
// starts no thread but the registration cache's monitor. Free of verbs headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "transports/transport.h"

namespace unisono {

enum class VerbsConnect : std::uint8_t { kExchange, kCm };

/// How devices, ports and paths are chosen and how patient they are. Defaults suit a cluster.
struct VerbsOptions {
  Rank rank = 0;
  int size = 1;
  /// "mlx5_0,mlx5_1:2": these devices or device:port only; "^mlx5_2": all but these; empty: all.
  std::string devices;
  /// "auto", a type ("rocev2", "rocev1", "ib") or an address that the GID must carry
  /// ("10.1.2.3", "fd00::7"). Never a number: numbers change when addresses do.
  std::string gid = "auto";
  /// Where the paths between ports come from: what both ends say in their hellos, or rdma_cm, which
  /// asks the network. Connections are made by hellos in either case.
  VerbsConnect connect = VerbsConnect::kExchange;
  int service_level = 0;         ///< 0..15
  int traffic_class = 0;         ///< 0..255; RoCE: DSCP in its upper six bits
  int partition_key = 0xffff;    ///< looked for in the port's table; the upper bit is membership
  int queue_pairs = 1;           ///< per port and peer; large frames are striped over all
  int ack_timeout = 14;          ///< 4.096 us * 2^this, 1..31
  int retries = 6;               ///< 0..6 (7 is infinite with some providers)
  bool relaxed_ordering = true;  ///< where the device offers it
  std::size_t message_bytes_max = 0;  ///< below the port's own limit; 0: the port's
  std::size_t registered_bytes_max = std::size_t{4} << 30;  ///< of users' memory kept registered
  std::size_t ring_bytes = 256 * 1024;  ///< per peer and direction; a multiple of 64
  /// Records and lent payloads have checksums, which are compared. The same at all ranks.
  bool checksum = false;
};

/// One port as `unisono info` and error messages show it. Values only.
struct VerbsPort {
  std::string device;
  int port = 1;
  bool usable = false;
  std::string reason;      ///< why it is used, or why not and what to do
  std::string state;       ///< "ACTIVE", "DOWN", ...
  std::string link_layer;  ///< "InfiniBand", "Ethernet"
  std::string gid;         ///< of the chosen entry, as text
  std::string gid_type;    ///< "RoCE v2", ...
  int gid_index = -1;      ///< for people only
  int mtu_bytes = 0;
  double gigabits_per_second = 0;
};

/// Every port of this machine. An error says why there is none: no library, no device, no
/// permission, with the remedy.
Result<std::vector<VerbsPort>> list_verbs_ports(const VerbsOptions& options);

/// Whether this build and machine can use verbs at all, or what is missing.
Probe probe_verbs_transport(const VerbsOptions& options);

/// `side` is the stream transport that peers without verbs are reached by; it is owned from now on
/// and must offer its address in the world table through this transport's address().
/// Errors: kUnsupported (no usable port: the reason of every one), kInvalidArgument (options out of
/// range, unknown device), kOutOfResources (memlock: the limit and the remedy).
Result<std::unique_ptr<Transport>> make_verbs_transport(VerbsOptions options,
                                                        std::unique_ptr<Transport> side);

}  // namespace unisono
