// Network namespaces that stand for hosts, for jobs that lose a network. They need root and
// iproute2.
//
// Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/support/child_process.h"

namespace unisono::test {

/// Nobody here is in a hurry: ranks pause between calls, and have time to start on a busy machine.
inline constexpr Duration kNetworkPatience = std::chrono::seconds(60);
inline constexpr Duration kPauseOfSums = std::chrono::milliseconds(5);

/// A host: a network namespace that lives as long as this.
class NetworkHost {
 public:
  NetworkHost();
  bool is_made() const { return is_made_; }
  pid_t pid() const { return process_.pid(); }
  /// A rank's TEST_NETWORK, whose host this is.
  std::string path() const { return "/proc/" + std::to_string(pid()) + "/ns/net"; }
  /// `ip` with these arguments, there; whether it succeeded.
  bool ip(const std::string& arguments) const;

 private:
  ChildProcess process_;
  bool is_made_;
};

/// What is missing for it; empty: nothing.
std::string what_hosts_lack();

/// A rank's: goes to the host of TEST_NETWORK.
bool enter_network();
/// A rank's: prints a line at once.
void say(const std::string& what);

}  // namespace unisono::test
