#include "rendezvous/standby.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/network.h"
#include "base/same_user.h"
#include "rendezvous/arbiter_server.h"
#include "rendezvous/control_address.h"
#include "rendezvous/peer_information.h"

namespace unisono::rendezvous {
namespace {

constexpr std::string_view kLinePrefix = "standby-";
constexpr std::string_view kUnixLine = "standby-unix", kTcpLine = "standby-tcp";
constexpr std::size_t kUnixNameBytesMax = 100;

void listen_here(Member* self, std::vector<Listener>* listeners) {
  const std::string name = random_socket_name();
  auto listener = listen_unix(name);
  if (!listener) return log::debug("no standby: " + listener.error().message());
  listener->needs_proof = true;  // all ranks have the key by then
  add_line(kUnixLine, name, self);
  listeners->push_back(std::move(*listener));
}

void listen_to_hosts(const RendezvousPoint& point, Member* self, std::vector<Listener>* listeners) {
  auto listener = listen_tcp(host_to_bind(point), 0, point.interface_address);
  if (!listener) return log::debug("no standby: " + listener.error().message());
  const ControlAddress address = address_of(*listener);
  if (address.hosts.empty()) return;
  add_address(kTcpLine, address, self);
  listeners->push_back(std::move(*listener));
}

}  // namespace

std::vector<Listener> open_standby(const RendezvousPoint& point, int size, Member* self) {
  std::vector<Listener> listeners;
  const bool may_be =
      may_be_standby(self->rank, point.local_rank, point.local_size) && self->rank < size;
  if (!may_be || point.within_process) return listeners;
  prepare_arbiters();
  if (check_own_user().ok()) listen_here(self, &listeners);
  if (may_span_hosts(point)) listen_to_hosts(point, self, &listeners);
  return listeners;
}

StandbyAddress standby_address(const Member& member) {
  StandbyAddress address;
  // Few listen, and all members are asked.
  if (member.addresses.find(kLinePrefix) == std::string::npos) return address;
  address.unix_name = find_address(member.addresses, kUnixLine);
  if (address.unix_name.size() > kUnixNameBytesMax) address.unix_name.clear();
  ControlAddress tcp = read_address(member.addresses, kTcpLine);
  address.hosts = std::move(tcp.hosts);
  address.port = tcp.port;
  return address;
}

std::vector<Rank> choose_standbys(const std::vector<Member>& members) {
  std::vector<Rank> rest, chosen;
  std::set<HostKey> hosts;
  for (const Member& member : members) {
    if (member.rank == 0 || standby_address(member).is_empty()) continue;
    rest.push_back(member.rank);
  }
  const auto take = [&](const auto& is_wanted) {
    std::erase_if(rest, [&](Rank rank) {
      const Member& member = members[static_cast<std::size_t>(rank)];
      if (std::ssize(chosen) == kStandbys || !is_wanted(member)) return false;
      chosen.push_back(rank);
      return true;
    });
  };
  take([&](const Member& member) {
    return same_host(member, members.front()) && hosts.insert(host_key(member)).second;
  });
  take([&](const Member& member) { return hosts.insert(host_key(member)).second; });
  take([](const Member&) { return true; });
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace unisono::rendezvous
