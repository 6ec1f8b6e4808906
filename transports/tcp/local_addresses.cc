// Asks the system for its interfaces. See local_addresses.h.
#include "transports/tcp/local_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace unisono::tcp {
namespace {

// Bridges of containers and virtual machines have the same addresses on many hosts: dialled last.
bool is_virtual(std::string_view interface_name) {
  for (const std::string_view prefix : {"docker", "br-", "veth", "virbr", "cni", "lxc"}) {
    if (interface_name.starts_with(prefix)) return true;
  }
  return false;
}

// Numeric text, or empty for what other hosts cannot use.
std::string text_of(const sockaddr* address, bool with_ipv6) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6 && with_ipv6) {
    sockaddr_in6 in;
    std::memcpy(&in, address, sizeof in);
    if (!IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) {
      ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> local_addresses(bool with_ipv6) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) list = nullptr;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<std::pair<int, std::string>> found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    if ((each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::string text = text_of(each->ifa_addr, with_ipv6);
    if (text.empty()) continue;
    const int order =
        (is_virtual(each->ifa_name) ? 2 : 0) + (each->ifa_addr->sa_family == AF_INET6 ? 1 : 0);
    found.emplace_back(order, std::move(text));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (auto& [order, text] : found) {
    if (std::find(out.begin(), out.end(), text) == out.end()) out.push_back(std::move(text));
  }
  if (out.empty()) out.push_back("127.0.0.1");
  return out;
}

}  // namespace unisono::tcp
