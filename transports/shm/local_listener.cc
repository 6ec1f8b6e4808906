#include "transports/shm/local_listener.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/errno_text.h"
#include "base/unique_fd.h"
#include "transports/shm/descriptor_message.h"

namespace unisono::shm {

Result<std::unique_ptr<LocalListener>> LocalListener::open() {
  std::array<unsigned char, 16> random;
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return Status(ErrorCode::kSystem, std::string("getrandom: ") + std::strerror(errno));
  }
  std::string name = "unisono-";
  for (const unsigned char byte : random) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    name += hex;
  }
  sockaddr_un address;
  UNISONO_ASSIGN(const socklen_t length, make_address(name, &address));
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return Status(ErrorCode::kSystem,
                  "cannot listen for the ranks of this host: " + errno_text(errno));
  }
  return std::unique_ptr<LocalListener>(new LocalListener(fd.release(), std::move(name)));
}

LocalListener::~LocalListener() { ::close(fd_); }

}  // namespace unisono::shm
