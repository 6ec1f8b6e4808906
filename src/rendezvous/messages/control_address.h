// Where a rank can be reached once all have met, as it tells the others in a line of its
// Member::addresses: a port, and the addresses of its host that lead to it.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/messages/job.h"

namespace unisono::rendezvous {

struct ControlAddress {
  std::vector<std::string> hosts;  ///< numeric
  std::uint16_t port = 0;          ///< at one of `hosts`; 0: none
};

/// Whether ranks that meet there may be on several hosts, as far as one can know before.
bool may_span_hosts(const RendezvousPoint& point);
/// The host that others know this one by, to bind: as rank 0 does, at the address that all know
/// where that is this host's, else at the interface (listen_tcp()).
std::string host_to_bind(const RendezvousPoint& point);

/// Adds a line, where there is room for it; nothing for an address without hosts.
void add_address(std::string_view kind, const ControlAddress& address, Member* self);
void add_line(std::string_view kind, std::string_view text, Member* self);
/// Whatever `addresses` says is checked.
ControlAddress read_address(const std::string& addresses, std::string_view kind);

/// The line that says where a rank answers probes (probe_port.h).
inline constexpr std::string_view kProbeLine = "probe-udp";
/// It can be asked over the network.
bool has_probe_port(const Member& member);

}  // namespace unisono::rendezvous
