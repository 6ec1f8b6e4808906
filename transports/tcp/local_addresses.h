// The addresses of this host that other hosts may reach it by. Set-up only.
#pragma once

#include <string>
#include <vector>

namespace unisono::tcp {

/// Numeric, IPv4 before IPv6, interfaces of containers and virtual machines last; loopback only
/// where there is nothing else. Never empty.
std::vector<std::string> local_addresses(bool with_ipv6);

}  // namespace unisono::tcp
