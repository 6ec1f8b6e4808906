// Whether a host, as a user or a launcher writes it, is this machine whatever the network says.
// Pure, safe from any thread.
#pragma once

#include <string_view>

namespace unisono {

inline bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace unisono
