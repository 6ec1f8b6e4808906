#include "rendezvous/standby.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "base/log.h"
#include "base/network.h"
#include "base/same_user.h"
#include "rendezvous/arbiter_server.h"
#include "rendezvous/control_messages.h"
#include "rendezvous/peer_information.h"

namespace unisono::rendezvous {
namespace {

constexpr std::string_view kLinePrefix = "standby-";
constexpr std::string_view kUnixLine = "standby-unix", kTcpLine = "standby-tcp";
constexpr std::size_t kStandbyHostsMax = 8;
constexpr std::size_t kUnixNameBytesMax = 100;

bool may_span_hosts(const RendezvousPoint& point) {
  using Kind = RendezvousPoint::Kind;
  const bool is_published = point.kind == Kind::kFile || point.kind == Kind::kStore;
  return point.kind == Kind::kTcp || point.kind == Kind::kUniqueId ||
         (is_published && !point.single_host);
}

// The address that is bound alone, or those that lead to a socket bound to all.
std::vector<std::string> hosts_of(const Listener& listener) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  char host[NI_MAXHOST] = "";
  if (::getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&bound), bytes, host, sizeof host, nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return {};
  }
  const std::string_view alone(host);
  if (alone != "::" && alone != "0.0.0.0") return {std::string(alone)};
  std::vector<std::string> hosts = local_addresses(listener.is_ipv6);
  if (hosts.size() > kStandbyHostsMax) hosts.resize(kStandbyHostsMax);
  return hosts;
}

void add_line(const std::string& line, Member* self) {
  std::string& addresses = self->addresses;
  if (!addresses.empty() && addresses.back() != '\n') addresses += '\n';
  if (addresses.size() + line.size() < kAddressBytesMax) addresses += line + "\n";
}

void listen_here(Member* self, std::vector<Listener>* listeners) {
  const std::string name = random_socket_name();
  auto listener = listen_unix(name);
  if (!listener) return log::debug("no standby: " + listener.error().message());
  listener->needs_proof = true;  // all ranks have the key by then
  add_line(fmt::format("{} {}", kUnixLine, name), self);
  listeners->push_back(std::move(*listener));
}

// As rank 0 does: at the address that all know where that is this host's, else at the interface.
void listen_to_hosts(const RendezvousPoint& point, Member* self, std::vector<Listener>* listeners) {
  const bool is_tcp = point.kind == RendezvousPoint::Kind::kTcp;
  auto listener = listen_tcp(is_tcp ? point.name : "", 0, point.interface_address);
  if (!listener) return log::debug("no standby: " + listener.error().message());
  const std::vector<std::string> hosts = hosts_of(*listener);
  if (hosts.empty()) return;
  std::string line = fmt::format("{} {}", kTcpLine, listener->port);
  for (const std::string& host : hosts) line += " " + host;
  add_line(line, self);
  listeners->push_back(std::move(*listener));
}

bool is_numeric_address(const std::string& host) {
  in6_addr scratch{};
  return ::inet_pton(AF_INET, host.c_str(), &scratch) == 1 ||
         ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &scratch) == 1;
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
  std::istringstream words(find_address(member.addresses, kTcpLine));
  std::string port;
  words >> port;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) address.port = 0;
  for (std::string host; words >> host && address.hosts.size() < kStandbyHostsMax;) {
    if (is_numeric_address(host)) address.hosts.push_back(host);
  }
  if (address.hosts.empty()) address.port = 0;
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
