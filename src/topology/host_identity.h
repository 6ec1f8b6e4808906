// Which host this process runs on, so that ranks can tell who shares memory with them. Read once
// at start by whoever needs it; values only, safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace unisono::topology {

struct HostIdentity {
  /// Equal in two processes exactly when they run under the same booted kernel with the same
  /// hostname: "<boot id>/<hostname>". Changes at reboot, so it never outlives shared memory.
  std::string host;
  /// The hostname, for messages.
  std::string name;
  /// The booted kernel alone.
  std::string boot;
  /// Inode of the network namespace; 0 where it cannot be read. Abstract UNIX sockets do not cross
  /// it, so two processes of one host can meet locally only where this is equal and not 0.
  std::uint64_t network_namespace = 0;
};

HostIdentity read_host_identity();

}  // namespace unisono::topology
