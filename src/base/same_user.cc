// See same_user.h.
#include "base/same_user.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace unisono {
namespace {

// All that are possible: the highest number stands for none.
constexpr std::uint64_t kUserCount = 0xffffffff;
constexpr uid_t kOverflowUserUsual = 65534;

uid_t overflow_user() {
  std::ifstream file("/proc/sys/kernel/overflowuid");
  uid_t user = 0;
  return file >> user ? user : kOverflowUserUsual;
}

// False also where it cannot be read.
bool maps_all_users() {
  std::ifstream file("/proc/self/uid_map");
  std::uint64_t inside = 0, outside = 0, count = 0, mapped = 0;
  while (file >> inside >> outside >> count) mapped += count;
  return mapped >= kUserCount;
}

}  // namespace

Status check_own_user() {
  const uid_t own = ::geteuid();
  if (own != overflow_user() || maps_all_users()) return {};
  return {
      ErrorCode::kAuthentication,
      fmt::format("this process runs as user {}, as which its user namespace shows every user "
                  "that it does not map, so that ranks cannot be told from strangers by their "
                  "user; give all ranks a job key (UNISONO_JOB_KEY) and meet at tcp://host:port "
                  "with UNISONO_TRANSPORT=tcp, or map this user into the namespace",
                  own)};
}

Status check_same_user(uid_t uid, const std::string& whose) {
  if (uid == ::geteuid()) return check_own_user();
  return {ErrorCode::kAuthentication,
          fmt::format("{} belongs to user {}, this rank to user {}; ranks of one host must run as "
                      "one user",
                      whose, uid, ::geteuid())};
}

Status check_same_user(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return {ErrorCode::kSystem,
            fmt::format("the other end's user is unknown: {}", std::strerror(errno))};
  }
  if (peer.pid == ::getpid()) return {};
  return check_same_user(peer.uid, fmt::format("process {} at the other end", peer.pid));
}

}  // namespace unisono
