// Connected pairs of stream sockets on this host.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace limits {

/// Two ends of one connection; closed with it.
class SocketPair {
 public:
  explicit SocketPair(bool is_unix) {
    const bool made = is_unix ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends_) == 0 : connect_tcp();
    if (!made) {
      std::perror("limits: socket");
      std::exit(2);
    }
  }
  SocketPair(const SocketPair&) = delete;
  SocketPair& operator=(const SocketPair&) = delete;
  ~SocketPair() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int operator[](int end) const { return ends_[end]; }

 private:
  bool connect_tcp() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener, any, length) != 0 || listen(listener, 1) != 0) return false;
    getsockname(listener, any, &length);
    ends_[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends_[0], any, length) != 0) return false;
    ends_[1] = accept(listener, nullptr, nullptr);
    close(listener);
    const int on = 1;
    for (const int end : ends_) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return ends_[1] >= 0;
  }

  int ends_[2] = {-1, -1};
};

}  // namespace limits
