#include "rendezvous/messages/peer_information.h"

#include <sstream>

namespace unisono {

std::string find_address(const std::string& addresses, std::string_view kind) {
  std::istringstream lines(addresses);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kind) && line.size() > kind.size() && line[kind.size()] == ' ') {
      return line.substr(kind.size() + 1);
    }
  }
  return "";
}

bool same_host(const Member& a, const Member& b) { return host_key(a) == host_key(b); }

bool see_each_other(const Member& a, const Member& b) {
  return same_host(a, b) && a.pid_namespace != 0 && a.pid_namespace == b.pid_namespace;
}

}  // namespace unisono
