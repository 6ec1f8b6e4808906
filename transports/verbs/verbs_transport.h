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
#include "base/verbs_setting.h"
#include "transports/transport.h"

namespace unisono {

struct VerbsOptions : VerbsSetting {
  Rank rank = 0;
  int size = 1;
  std::size_t message_bytes_max = 0;    ///< below the port's own limit; 0: the port's
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
