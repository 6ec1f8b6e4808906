#include "rendezvous/messages/control_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <sstream>

#include "base/number_text.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/peer_information.h"

namespace unisono::rendezvous {
namespace {

constexpr std::size_t kHostsMax = 8;

bool is_numeric_address(const std::string& host) {
  in6_addr scratch{};
  return ::inet_pton(AF_INET, host.c_str(), &scratch) == 1 ||
         ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &scratch) == 1;
}

}  // namespace

bool may_span_hosts(const RendezvousPoint& point) {
  using Kind = RendezvousPoint::Kind;
  const bool is_published = point.kind == Kind::kFile || point.kind == Kind::kStore;
  return point.kind == Kind::kTcp || point.kind == Kind::kUniqueId ||
         (is_published && !point.single_host);
}

std::string host_to_bind(const RendezvousPoint& point) {
  return point.kind == RendezvousPoint::Kind::kTcp ? point.name : "";
}

void add_line(std::string_view kind, std::string_view text, Member* self) {
  std::string& addresses = self->addresses;
  if (!addresses.empty() && addresses.back() != '\n') addresses += '\n';
  const std::string line = fmt::format("{} {}", kind, text);
  if (addresses.size() + line.size() < kAddressBytesMax) addresses += line + "\n";
}

void add_address(std::string_view kind, const ControlAddress& address, Member* self) {
  if (address.hosts.empty()) return;
  std::string text = std::to_string(address.port);
  const std::size_t hosts = std::min(address.hosts.size(), kHostsMax);
  for (std::size_t i = 0; i < hosts; ++i) text += " " + address.hosts[i];
  add_line(kind, text, self);
}

ControlAddress read_address(const std::string& addresses, std::string_view kind) {
  ControlAddress address;
  std::istringstream words(find_address(addresses, kind));
  std::string port;
  words >> port;
  if (!read_number(port, &address.port)) address.port = 0;
  for (std::string host; words >> host && address.hosts.size() < kHostsMax;) {
    if (is_numeric_address(host)) address.hosts.push_back(host);
  }
  if (address.hosts.empty()) address.port = 0;
  return address;
}

bool has_probe_port(const Member& member) {
  return read_address(member.addresses, kProbeLine).port != 0;
}

}  // namespace unisono::rendezvous
