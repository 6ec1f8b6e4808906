#include "rendezvous/failure/standby.h"

#include <algorithm>
#include <set>
#include <utility>

#include "rendezvous/messages/control_address.h"
#include "rendezvous/messages/peer_information.h"

namespace unisono::rendezvous {
namespace {

constexpr std::string_view kLinePrefix = "standby-";
constexpr std::size_t kUnixNameBytesMax = 100;

}  // namespace

StandbyAddress standby_address(const Member& member) {
  StandbyAddress address;
  // Few listen, and all members are asked.
  if (member.addresses.find(kLinePrefix) == std::string::npos) return address;
  address.unix_name = find_address(member.addresses, kStandbyUnixLine);
  if (address.unix_name.size() > kUnixNameBytesMax) address.unix_name.clear();
  ControlAddress tcp = read_address(member.addresses, kStandbyTcpLine);
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
