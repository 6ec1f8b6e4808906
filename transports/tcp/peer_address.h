// The text by which a rank publishes where it listens, and what a dialler makes of it:
//   tcp:<port>:<address>,<address>...      numeric IPv4 or IPv6, in the order to try
//   unix:<name>                            abstract socket
// Values only; any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace unisono::tcp {

inline constexpr std::size_t kAddressBytesMax = 512;
inline constexpr std::size_t kTargetsMax = 16;

/// One place to connect to.
struct Target {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};
/// "10.0.0.5:4411", "[fd00::2]:4411", "UNIX socket @unisono-...".
std::string to_text(const Target& target);
/// True where both are addresses of one host's interface, or UNIX sockets.
bool same_host(const Target& local, const Target& remote);

/// From a numeric address; kInvalidArgument otherwise.
Result<Target> tcp_target(std::string_view address, std::uint16_t port);
/// From the name of an abstract socket, without its leading zero byte.
Result<Target> unix_target(std::string_view name);

/// As published: at most kTargetsMax addresses and kAddressBytesMax bytes; what is beyond is left.
std::string tcp_address_text(std::uint16_t port, const std::vector<std::string>& addresses);
std::string unix_address_text(std::string_view name);

/// All places of a published text, which comes from another rank: checked in full.
Result<std::vector<Target>> parse_address(std::string_view text);

}  // namespace unisono::tcp
