#include "transports/shm/local_listener.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "base/errno_text.h"
#include "base/network.h"
#include "base/unique_fd.h"
#include "transports/shm/descriptor_message.h"

namespace unisono::shm {

Result<std::unique_ptr<LocalListener>> LocalListener::open() {
  std::string name = random_socket_name();
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
