#include "tests/fault/network_host.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/unique_fd.h"

namespace unisono::test {
namespace {

int be_network() {
  const bool alone = ::unshare(CLONE_NEWNET) == 0;
  say(alone ? "network" : "not allowed");
  while (alone) ::pause();
  return 1;
}

const RoleEntry network_entry("be_network", &be_network);

bool succeeds(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

}  // namespace

NetworkHost::NetworkHost()
    : process_("be_network", {}), is_made_(process_.prints("network", kNetworkPatience)) {}

bool NetworkHost::ip(const std::string& arguments) const {
  return succeeds("nsenter --net=" + path() + " ip " + arguments);
}

std::string what_hosts_lack() {
  if (::geteuid() != 0) return "root";
  if (!succeeds("ip -V")) return "ip (package iproute2)";
  if (!succeeds("nsenter -V")) return "nsenter (package util-linux)";
  if (!NetworkHost().is_made()) return "leave to make a network namespace (unshare)";
  return "";
}

bool enter_network() {
  const UniqueFd host(::open(std::getenv("TEST_NETWORK"), O_RDONLY | O_CLOEXEC));
  return host && ::setns(host.get(), CLONE_NEWNET) == 0;
}

void say(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
}

}  // namespace unisono::test
