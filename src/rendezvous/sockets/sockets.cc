#include "rendezvous/sockets/sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include "base/errno_text.h"
#include "base/network.h"
#include "base/same_user.h"

namespace unisono::rendezvous {
namespace {

// A host that vanishes is noticed after kUnansweredTime, whether something is under way or not.
constexpr int kIdleS = 5, kIntervalS = 2, kProbes = 5;
static_assert(kUnansweredTime.count() == kIdleS + kIntervalS * kProbes);
constexpr unsigned kUnansweredMs = 1000 * kUnansweredTime.count();

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr ListenOptions kListenOptions;

Status failed(const std::string& what, int error) {
  return {ErrorCode::kRendezvous, fmt::format("{}: {}", what, errno_text(error))};
}

Result<socklen_t> unix_address_of(const std::string& name, sockaddr_un* address) {
  if (const auto bytes = unix_address(name, address)) return *bytes;
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("the abstract socket name '{}' has {} bytes, allowed are 1 to {}", name,
                            name.size(), kSocketNameBytesMax));
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int outcome = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                    std::to_string(port).c_str(), &hints, &found);
  if (outcome != 0) {
    return Status(ErrorCode::kRendezvous,
                  fmt::format("cannot resolve host '{}': {}", host, ::gai_strerror(outcome)));
  }
  return AddressList(found, &::freeaddrinfo);
}

bool names_one_address(const std::string& host) {
  in6_addr scratch{};
  return host == "localhost" || ::inet_pton(AF_INET, host.c_str(), &scratch) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &scratch) == 1;
}

// Tries IPv6 first where `list` holds both.
int listen_at_any(const AddressList& list, const ListenOptions& options, ListeningSocket* socket) {
  int error = EADDRNOTAVAIL;
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
      if (at->ai_family != family) continue;
      error = listen_at(at->ai_addr, at->ai_addrlen, options, socket);
      // A port that is taken in one family must not be dodged by way of the other.
      if (error == 0 || error == EADDRINUSE) return error;
    }
  }
  return error;
}

// `listen` makes the socket. 0, or the errno of the call that failed.
template <typename Listen>
int listen_guarded(Listen&& listen, Listener* listener) {
  const NoFork no_fork;
  ListeningSocket socket;
  const int error = listen(&socket);
  if (error != 0) return error;
  listener->fd = GuardedFd(std::move(socket.fd), no_fork);
  listener->is_ipv6 = socket.is_ipv6;
  listener->port = socket.port;
  return 0;
}

Result<Listener> listen_at_host(const std::string& host, std::uint16_t port,
                                const std::string& interface_address,
                                const ListenOptions& options) {
  Listener listener;
  listener.needs_proof = true;
  int error = EADDRNOTAVAIL;
  AddressList list(nullptr, &::freeaddrinfo);
  const auto listen = [&](ListeningSocket* socket) { return listen_at_any(list, options, socket); };
  if (names_one_address(host)) {
    UNISONO_ASSIGN(list, resolve(host, port, AI_PASSIVE));
    error = listen_guarded(listen, &listener);
  }
  // A name that is no address of this host (or one translated on the way here) still leads here.
  if (error == EADDRNOTAVAIL && !interface_address.empty()) {
    UNISONO_ASSIGN(list, resolve(interface_address, port, AI_PASSIVE));
    error = listen_guarded(listen, &listener);
    if (error == EADDRNOTAVAIL) {
      return Status(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' is no address of this host (UNISONO_INTERFACE)", interface_address));
    }
  } else if (error == EADDRNOTAVAIL) {
    const auto listen_anywhere = [&](ListeningSocket* socket) {
      return listen_everywhere(port, options, socket);
    };
    error = listen_guarded(listen_anywhere, &listener);
  }
  if (error == 0) return listener;
  const std::string where =
      options.is_datagram ? "udp " + address_text(host, port) : tcp_text(host, port);
  return failed(fmt::format("cannot listen at {}", where), error);
}

GuardedFd make_socket(int family) {
  const NoFork no_fork;
  return GuardedFd(UniqueFd(::socket(family, kSocketFlags, 0)), no_fork);
}

int begin_connect(const sockaddr* address, socklen_t bytes, GuardedFd* out) {
  GuardedFd fd = make_socket(address->sa_family);
  if (!fd) return errno;
  if (::connect(fd.get(), address, bytes) != 0 && errno != EINPROGRESS) return errno;
  *out = std::move(fd);
  return 0;
}

Status connect_failed(const std::string& where, int error) {
  return failed(fmt::format("cannot connect to {}", where), error);
}

// 0, or the errno of the call that failed; an error is that of `go_on`.
Result<int> connect_by(TimePoint deadline, int fd, const addrinfo& address,
                       const std::function<Status()>& go_on) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return int{errno};
  UNISONO_ASSIGN(const bool is_over, wait_ready(fd, true, deadline, go_on));
  if (!is_over) return ETIMEDOUT;
  int error = 0;
  socklen_t bytes = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

}  // namespace

std::string tcp_text(std::string_view host, std::uint16_t port) {
  return "tcp " + address_text(host, port);
}

std::string unix_text(std::string_view name) { return fmt::format("UNIX socket @{}", name); }

Result<Listener> listen_unix(const std::string& name) {
  sockaddr_un address;
  UNISONO_ASSIGN(const socklen_t bytes, unix_address_of(name, &address));
  Listener listener;
  listener.is_unix = true;
  const auto listen = [&](ListeningSocket* socket) {
    return listen_at(reinterpret_cast<const sockaddr*>(&address), bytes, kListenOptions, socket);
  };
  const int error = listen_guarded(listen, &listener);
  if (error != 0) return failed(fmt::format("cannot listen at {}", unix_text(name)), error);
  return listener;
}

Result<Listener> listen_tcp(const std::string& host, std::uint16_t port,
                            const std::string& interface_address) {
  return listen_at_host(host, port, interface_address, kListenOptions);
}

Result<Listener> bind_udp(const std::string& host, const std::string& interface_address) {
  return listen_at_host(host, 0, interface_address, {.is_datagram = true});
}

ControlAddress address_of(const Listener& listener) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  char host[NI_MAXHOST] = "";
  if (::getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&bound), bytes, host, sizeof host, nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return {};
  }
  const std::string_view alone(host);
  if (alone != "::" && alone != "0.0.0.0") return {{std::string(alone)}, listener.port};
  return {local_addresses(listener.is_ipv6), listener.port};
}

Result<GuardedFd> connect_unix(const std::string& name, TimePoint deadline) {
  constexpr Duration kAskAgain = std::chrono::milliseconds(1);
  sockaddr_un address;
  UNISONO_ASSIGN(const socklen_t bytes, unix_address_of(name, &address));
  GuardedFd fd = make_socket(AF_UNIX);
  if (!fd) return failed("cannot create a UNIX socket", errno);
  // EAGAIN: too many wait to be accepted, and no event tells when there is room.
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    if (errno != EAGAIN || Clock::now() >= deadline) return connect_failed(unix_text(name), errno);
    std::this_thread::sleep_for(kAskAgain);
  }
  if (const Status same = check_same_user(fd.get()); !same) {
    return Status(ErrorCode::kRendezvous, fmt::format("{}: {}", unix_text(name), same.message()));
  }
  return fd;
}

Result<GuardedFd> connect_tcp(const std::string& host, std::uint16_t port, TimePoint deadline,
                              const std::function<Status()>& go_on, Duration each) {
  UNISONO_ASSIGN(const AddressList list, resolve(host, port, 0));
  Status unmade(ErrorCode::kRendezvous, fmt::format("host '{}' has no address", host)), refused;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    GuardedFd fd = make_socket(at->ai_family);
    if (!fd) {  // the kernel may lack a family: what another address says tells more
      unmade = failed("cannot create a TCP socket", errno);
      continue;
    }
    const TimePoint patience = std::min(deadline, Clock::now() + each);
    UNISONO_ASSIGN(const int error, connect_by(patience, fd.get(), *at, go_on));
    if (error == 0) {
      tune_tcp(fd.get());
      return fd;
    }
    refused = connect_failed(tcp_text(host, port), error);
  }
  return refused ? unmade : refused;
}

int begin_connect_unix(const std::string& name, GuardedFd* out) {
  sockaddr_un address;
  const auto bytes = unix_address(name, &address);
  if (!bytes) return EINVAL;
  const int error = begin_connect(reinterpret_cast<const sockaddr*>(&address), *bytes, out);
  return error == 0 && !check_same_user(out->get()) ? ECONNREFUSED : error;
}

int begin_connect_tcp(const std::string& address, std::uint16_t port, GuardedFd* out) {
  const auto list = resolve(address, port, AI_NUMERICHOST);
  return list ? begin_connect((*list)->ai_addr, (*list)->ai_addrlen, out) : EINVAL;
}

std::string peer_text(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "gone already";
  if (address.ss_family != AF_UNIX) return address_text(address, bytes);
  ucred credentials{};
  bytes = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return "unknown";
  return fmt::format("uid {}, pid {}", credentials.uid, credentials.pid);
}

Result<std::pair<GuardedFd, GuardedFd>> connected_pair() {
  int fds[2];
  const NoFork no_fork;
  if (::socketpair(AF_UNIX, kSocketFlags, 0, fds) != 0) {
    return failed("cannot create a socket pair", errno);
  }
  return std::pair(GuardedFd(UniqueFd(fds[0]), no_fork), GuardedFd(UniqueFd(fds[1]), no_fork));
}

void tune_tcp(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleS, sizeof kIdleS);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kIntervalS, sizeof kIntervalS);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredMs, sizeof kUnansweredMs);
  bound_retransmission_pause(fd);
}

bool wait_ready(int fd, bool writable, TimePoint deadline) {
  for (;;) {
    pollfd entry{fd, static_cast<short>(writable ? POLLOUT : POLLIN), 0};
    const TimePoint now = Clock::now();
    const int count = ::poll(&entry, 1, timeout_ms(deadline, now));
    if (count > 0) return true;
    if (count == 0 && Clock::now() >= deadline) return false;
    if (count < 0 && errno != EINTR) return false;
  }
}

Result<bool> wait_ready(int fd, bool writable, TimePoint deadline,
                        const std::function<Status()>& go_on) {
  if (!go_on) return wait_ready(fd, writable, deadline);
  for (;;) {
    const TimePoint look = std::min(deadline, Clock::now() + kGoOnEvery);
    if (wait_ready(fd, writable, look)) return true;
    UNISONO_TRY(go_on());
    if (look == deadline) return false;
  }
}

int timeout_ms(TimePoint deadline, TimePoint now) {
  constexpr std::chrono::milliseconds kLongest(60'000);
  if (deadline <= now) return 0;
  // Compared before it is rounded: kNever minus now still fits, in nanoseconds only.
  if (deadline - now >= kLongest) return static_cast<int>(kLongest.count());
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count());
}

}  // namespace unisono::rendezvous
