#include "topology/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>

#include "base/small_file.h"

namespace unisono::topology {
namespace {

constexpr std::size_t kIdentifierBytesMax = 128;

std::string hostname() {
  char buffer[HOST_NAME_MAX + 1] = {};
  if (::gethostname(buffer, sizeof(buffer) - 1) != 0 || buffer[0] == '\0') return "unknown-host";
  return buffer;
}

// The kernel makes a new one at every boot. A sandbox may hide it; the machine id is next best.
std::string boot_id() {
  for (const char* path : {"/proc/sys/kernel/random/boot_id", "/etc/machine-id"}) {
    std::string text = first_line(path, kIdentifierBytesMax);
    if (!text.empty()) return text;
  }
  return "unknown-boot";
}

std::uint64_t network_namespace() {
  struct stat facts {};
  return ::stat("/proc/self/ns/net", &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace

HostIdentity read_host_identity() {
  HostIdentity identity;
  identity.name = hostname();
  identity.boot = boot_id();
  identity.host = identity.boot + "/" + identity.name;
  identity.network_namespace = network_namespace();
  return identity;
}

}  // namespace unisono::topology
