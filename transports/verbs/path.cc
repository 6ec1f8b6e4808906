// See path.h.
#include "transports/verbs/path.h"

#include <endian.h>

#include <algorithm>
#include <cstring>

#include "transports/verbs/port_address.h"

namespace unisono::verbs {
namespace {

constexpr std::uint8_t kHopLimit = 64;
constexpr int kAckTimeoutMax = 31;

}  // namespace

Path told_path(const PortSurvey& port, const QueuePairEnd& peer, const VerbsOptions& options) {
  Path path;
  path.mtu = std::min(static_cast<ibv_mtu>(peer.mtu), port.attributes.active_mtu);
  path.ack_timeout = static_cast<std::uint8_t>(options.ack_timeout);
  ibv_ah_attr& address = path.address;
  address.dlid = peer.lid;
  address.sl = static_cast<std::uint8_t>(options.service_level);
  address.port_num = port.port;
  ibv_gid gid;
  std::memcpy(gid.raw, peer.gid.data(), peer.gid.size());
  // RoCE always has the global header; within an InfiniBand subnet the local address will do,
  // unless virtual functions share it.
  const bool is_needed = peer.needs_grh || (port.attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  if (!is_infiniband(port.attributes) || is_needed ||
      gid.global.subnet_prefix != port.gid.global.subnet_prefix) {
    address.is_global = 1;
    address.grh.dgid = gid;
    address.grh.sgid_index = port.gid_index;
    address.grh.hop_limit = kHopLimit;
    address.grh.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
  }
  return path;
}

Path recorded_path(const PortSurvey& port, const QueuePairEnd& peer, const VerbsOptions& options,
                   const ibv_sa_path_rec& record) {
  Path path = told_path(port, peer, options);
  ibv_ah_attr& address = path.address;
  address.sl = record.sl & 0xf;
  address.static_rate = record.rate;
  if (record.mtu >= IBV_MTU_256 && record.mtu < path.mtu)
    path.mtu = static_cast<ibv_mtu>(record.mtu);
  if (address.is_global) {
    if (record.hop_limit > 0) address.grh.hop_limit = record.hop_limit;
    address.grh.traffic_class = record.traffic_class;
    address.grh.flow_label = be32toh(record.flow_label) & 0xfffff;
  }
  if (!is_infiniband(port.attributes)) return path;
  // On Ethernet the kernel has no local address nor life time to tell: it fills in constants.
  address.dlid = be16toh(record.dlid);
  const unsigned paths_of_port = 1u << (port.attributes.lmc & 7);
  address.src_path_bits = static_cast<std::uint8_t>(be16toh(record.slid) & (paths_of_port - 1));
  // There and back.
  path.ack_timeout = static_cast<std::uint8_t>(
      std::clamp((record.packet_life_time & 0x3f) + 1, int{path.ack_timeout}, kAckTimeoutMax));
  return path;
}

}  // namespace unisono::verbs
