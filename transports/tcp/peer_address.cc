// Parsing and printing. See peer_address.h.
#include "transports/tcp/peer_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/network.h"
#include "base/number_text.h"

namespace unisono::tcp {
namespace {

Status malformed(std::string_view text, std::string_view why) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}' is no stream address ({}); expected tcp:<port>:<address>,... or "
                      "unix:<name>",
                      text.substr(0, 80), why)};
}

sockaddr_in as_ipv4(const Target& target) {
  sockaddr_in out{};
  std::memcpy(&out, &target.address, sizeof out);
  return out;
}

sockaddr_in6 as_ipv6(const Target& target) {
  sockaddr_in6 out{};
  std::memcpy(&out, &target.address, sizeof out);
  return out;
}

Result<std::vector<Target>> parse_tcp(std::string_view text, std::string_view rest) {
  const auto colon = rest.find(':');
  if (colon == std::string_view::npos) return malformed(text, "no port");
  std::uint16_t port = 0;
  if (!read_number(rest.substr(0, colon), &port) || port == 0) {
    return malformed(text, "the port is not a number from 1 to 65535");
  }
  rest.remove_prefix(colon + 1);
  std::vector<Target> out;
  while (!rest.empty()) {
    if (out.size() == kTargetsMax) return malformed(text, "more than 16 addresses");
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    auto target = tcp_target(one, port);
    if (!target) return malformed(text, target.error().message());
    out.push_back(*target);
  }
  if (out.empty()) return malformed(text, "no address");
  return out;
}

}  // namespace

std::string to_text(const Target& target) { return address_text(target.address, target.bytes); }

bool same_host(const Target& local, const Target& remote) {
  if (local.address.ss_family != remote.address.ss_family) return false;
  if (local.address.ss_family == AF_UNIX) return true;
  if (local.address.ss_family == AF_INET) {
    return as_ipv4(local).sin_addr.s_addr == as_ipv4(remote).sin_addr.s_addr;
  }
  const sockaddr_in6 a = as_ipv6(local), b = as_ipv6(remote);
  return std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0;
}

Result<Target> tcp_target(std::string_view address, std::uint16_t port) {
  const std::string host(address.substr(0, INET6_ADDRSTRLEN));
  if (host.find('\0') != std::string::npos) {
    return Status(ErrorCode::kInvalidArgument, "a numeric address with a zero byte in it");
  }
  sockaddr_in ipv4{};
  sockaddr_in6 ipv6{};
  Target out;
  if (::inet_pton(AF_INET, host.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    out.bytes = sizeof ipv4;
    std::memcpy(&out.address, &ipv4, sizeof ipv4);
    return out;
  }
  if (::inet_pton(AF_INET6, host.c_str(), &ipv6.sin6_addr) == 1) {
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    out.bytes = sizeof ipv6;
    std::memcpy(&out.address, &ipv6, sizeof ipv6);
    return out;
  }
  return Status(ErrorCode::kInvalidArgument, fmt::format("'{}' is no numeric address", host));
}

Result<Target> unix_target(std::string_view name) {
  sockaddr_un address;
  const std::optional<socklen_t> bytes = unix_address(name, &address);
  if (!bytes || name.find('\0') != std::string_view::npos) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("a UNIX socket name of {} bytes; 1 to {} are allowed", name.size(),
                              kSocketNameBytesMax));
  }
  Target out;
  out.bytes = *bytes;
  std::memcpy(&out.address, &address, sizeof address);
  return out;
}

std::string tcp_address_text(std::uint16_t port, const std::vector<std::string>& addresses) {
  std::string out = fmt::format("tcp:{}:", port);
  std::size_t written = 0;
  for (const std::string& address : addresses) {
    if (written == kTargetsMax || out.size() + address.size() + 1 > kAddressBytesMax) break;
    if (written++ > 0) out += ',';
    out += address;
  }
  return out;
}

std::string unix_address_text(std::string_view name) { return fmt::format("unix:{}", name); }

Result<std::vector<Target>> parse_address(std::string_view text) {
  if (text.size() > kAddressBytesMax) return malformed(text, "more than 512 bytes");
  if (text.starts_with("tcp:")) return parse_tcp(text, text.substr(4));
  if (!text.starts_with("unix:")) return malformed(text, "unknown family");
  auto target = unix_target(text.substr(5));
  if (!target) return malformed(text, target.error().message());
  return std::vector<Target>{*target};
}

}  // namespace unisono::tcp
