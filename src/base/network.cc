// See network.h.
#include "base/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/handshake.h"
#include "base/number_text.h"
#include "base/small_file.h"

namespace unisono {
namespace {

// Where an abstract name begins, behind the zero byte that makes it abstract.
constexpr std::size_t kNameAt = offsetof(sockaddr_un, sun_path) + 1;

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
    // A link-local address means nothing without the other host's interface name.
    if (!IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) {
      ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    }
  }
  return text;
}

std::uint16_t bound_port(int fd) {
  sockaddr_in6 address{};  // the port lies at the same place in IPv4
  socklen_t bytes = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.sin6_port);
}

int listen_in_family(const sockaddr* address, socklen_t bytes, const ListenOptions& options,
                     bool both_families, ListeningSocket* out) {
  const int family = address->sa_family;
  const int type = options.is_datagram ? SOCK_DGRAM : SOCK_STREAM;
  UniqueFd fd(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(fd.get(), level, name, &value, sizeof value);
  };
  // So that a job may begin anew on the port of one that has just ended. Datagrams may be shared
  // so.
  if (family != AF_UNIX && !options.is_datagram) set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) set(IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1);
  // Comes before anyone connects: the window is agreed then.
  if (options.send_buffer_bytes > 0) set(SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes);
  if (options.receive_buffer_bytes > 0) set(SOL_SOCKET, SO_RCVBUF, options.receive_buffer_bytes);
  if (::bind(fd.get(), address, bytes) != 0) return errno;
  if (!options.is_datagram && ::listen(fd.get(), options.backlog) != 0) return errno;
  out->is_ipv6 = family == AF_INET6;
  out->port = family == AF_UNIX ? std::uint16_t{0} : bound_port(fd.get());
  out->fd = std::move(fd);
  return 0;
}

}  // namespace

std::string address_text(std::string_view host, std::uint16_t port) {
  return host.find(':') != std::string_view::npos ? fmt::format("[{}]:{}", host, port)
                                                  : fmt::format("{}:{}", host, port);
}

std::string address_text(const sockaddr_storage& address, socklen_t bytes) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address, sizeof in);
    ::inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
    return address_text(host, ntohs(in.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &address, sizeof in);
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      ::inet_ntop(AF_INET, in.sin6_addr.s6_addr + 12, host, sizeof host);
    } else {
      ::inet_ntop(AF_INET6, &in.sin6_addr, host, sizeof host);
    }
    return address_text(host, ntohs(in.sin6_port));
  }
  if (address.ss_family == AF_UNIX && bytes > kNameAt && bytes <= sizeof address) {
    const char* name = reinterpret_cast<const char*>(&address) + kNameAt;
    return fmt::format("UNIX socket @{}", std::string_view(name, bytes - kNameAt));
  }
  return "UNIX socket";
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

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

std::string random_socket_name() {
  // Half of 32 random bytes is plenty.
  return "unisono-" + random_hex(32);
}

std::optional<socklen_t> unix_address(std::string_view name, sockaddr_un* address) {
  if (name.empty() || name.size() > kSocketNameBytesMax) return std::nullopt;
  *address = {};
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(kNameAt + name.size());
}

int listen_queue() {
  int limit = 0;
  read_number(first_line("/proc/sys/net/core/somaxconn", 16), &limit);
  return std::min(limit, kListenQueueMax);
}

int listen_at(const sockaddr* address, socklen_t bytes, const ListenOptions& options,
              ListeningSocket* out) {
  return listen_in_family(address, bytes, options, false, out);
}

int listen_everywhere(std::uint16_t port, const ListenOptions& options, ListeningSocket* out) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  const int error =
      listen_in_family(reinterpret_cast<sockaddr*>(&any6), sizeof any6, options, true, out);
  // A host without IPv6 listens on IPv4; a port that is taken is taken in both.
  if (error == 0 || error == EADDRINUSE) return error;
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  return listen_in_family(reinterpret_cast<sockaddr*>(&any4), sizeof any4, options, false, out);
}

void bound_retransmission_pause(int fd) {
  constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS, which headers before Linux 6.15 lack
  constexpr int kPauseMs = 1000;
  ::setsockopt(fd, IPPROTO_TCP, kRtoMaxMs, &kPauseMs, sizeof kPauseMs);
}

void hasten_retransmission(int fd, Duration pause) {
  constexpr int kRtoMinUs = 45;  // TCP_RTO_MIN_US
  const auto us =
      static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(pause).count());
  ::setsockopt(fd, IPPROTO_TCP, kRtoMinUs, &us, sizeof us);
}

std::string source_of(int fd) {
  constexpr std::size_t kNetworkBytes = 8;
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "";
  if (address.ss_family == AF_UNIX) {
    ucred peer{};
    bytes = sizeof peer;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0
               ? "pid " + std::to_string(peer.pid)
               : "";
  }
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &address, sizeof in);
    if (!IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      return {reinterpret_cast<const char*>(in.sin6_addr.s6_addr), kNetworkBytes};
    }
  }
  const std::string text = address_text(address, bytes);
  return text.substr(0, text.rfind(':'));
}

}  // namespace unisono
