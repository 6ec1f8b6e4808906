// The few socket calls the rendezvous needs: abstract UNIX and TCP, listening and connecting, and
// UDP, all non-blocking and close-on-exec. Errors carry the address and the system's words.
//
// Thread rule: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/messages/control_address.h"
#include "rendezvous/sockets/fork_guard.h"

namespace unisono::rendezvous {

/// After which the other end of a connection counts as lost, where its host has vanished.
inline constexpr std::chrono::seconds kUnansweredTime(15);
/// How often `go_on` is asked below: its error ends a wait that is in vain. Empty: nobody is.
inline constexpr Duration kGoOnEvery = std::chrono::milliseconds(50);
/// One address may swallow packets; the next one, or a newer file, must have its turn.
inline constexpr Duration kConnectTime = std::chrono::seconds(2);

/// A socket that ranks may connect to.
struct Listener {
  GuardedFd fd;  ///< a forked child must not keep the name or port taken
  bool is_unix = false;
  bool needs_proof = false;  ///< of the job key; a UNIX socket knows the user already
  bool is_ipv6 = false;
  std::uint16_t port = 0;  ///< TCP, UDP: the one bound
};

/// "tcp 10.0.0.1:29501" or "UNIX socket @unisono-...".
std::string tcp_text(std::string_view host, std::uint16_t port);
std::string unix_text(std::string_view name);

/// An abstract UNIX socket: no file, gone with the process, one network namespace.
Result<Listener> listen_unix(const std::string& name);
/// Port 0: any. A numeric host or "localhost" binds that address alone where it is local; for any
/// other name `interface_address` is bound or, where that is empty, every address, because a host's
/// own name often means 127.0.1.1 on itself.
Result<Listener> listen_tcp(const std::string& host, std::uint16_t port,
                            const std::string& interface_address = "");

/// A UDP socket at any port, bound as listen_tcp() binds.
Result<Listener> bind_udp(const std::string& host, const std::string& interface_address);

/// The address that is bound alone, or those that lead to a socket bound to all.
ControlAddress address_of(const Listener& listener);

/// A connected socket, or kRendezvous with the reason. Refuses a listener of another user. Waits
/// until `deadline` where too many wait to be accepted.
Result<GuardedFd> connect_unix(const std::string& name, TimePoint deadline = {});
/// The same at the addresses of `host` in turn, each of which has `each` to answer.
Result<GuardedFd> connect_tcp(const std::string& host, std::uint16_t port, TimePoint deadline,
                              const std::function<Status()>& go_on = {},
                              Duration each = kConnectTime);
/// The same without waiting: 0, or the errno of the call that failed. ECONNREFUSED: nobody of this
/// user listens there.
int begin_connect_unix(const std::string& name, GuardedFd* out);
/// The same at a numeric address: connected, or not, once `out` is writable.
int begin_connect_tcp(const std::string& address, std::uint16_t port, GuardedFd* out);

/// "10.0.0.7:51514" or "uid 1000, pid 4242", for log lines.
std::string peer_text(int fd);

/// A pair of connected sockets, for rank 0 and the arbiter in its own process.
Result<std::pair<GuardedFd, GuardedFd>> connected_pair();

/// No delay for small messages, and a dead host is noticed within some 15 s.
void tune_tcp(int fd);

/// Waits for readability (or writability) until `deadline`; false when it passed.
bool wait_ready(int fd, bool writable, TimePoint deadline);
/// The same; an error is that of `go_on`.
Result<bool> wait_ready(int fd, bool writable, TimePoint deadline,
                        const std::function<Status()>& go_on);
/// For poll and epoll: rounded up, 0 when passed, at most a minute.
int timeout_ms(TimePoint deadline, TimePoint now);

}  // namespace unisono::rendezvous
