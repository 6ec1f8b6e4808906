// What the rendezvous and the stream transport both ask of the network: this host's addresses, how
// addresses look in messages, listening sockets, and who is at the other end of a socket.
//
// Thread rule: any thread. Set-up only.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono {

/// "10.0.0.1:29501" or "[::1]:29501".
std::string address_text(std::string_view host, std::uint16_t port);
/// The same of a socket address; IPv4 in IPv6 as IPv4; "UNIX socket @name" of an abstract one.
std::string address_text(const sockaddr_storage& address, socklen_t bytes);

/// "localhost" or a numeric address of the loopback interface.
bool is_loopback(std::string_view host);

/// The addresses other hosts may reach this one by: numeric, IPv4 before IPv6, interfaces of
/// containers and virtual machines last; loopback only where there is nothing else. Never empty.
std::vector<std::string> local_addresses(bool with_ipv6);

/// A name for an abstract socket that nobody can guess.
std::string random_socket_name();
inline constexpr std::size_t kSocketNameBytesMax = sizeof(sockaddr_un::sun_path) - 1;
/// The address of the abstract socket of that name, and how long it is. Nothing where the name is
/// empty or has more bytes than that.
std::optional<socklen_t> unix_address(std::string_view name, sockaddr_un* address);

/// Connections that may wait for whoever listens; the kernel cuts it to net.core.somaxconn.
inline constexpr int kListenQueueMax = 4096;
/// The shorter of both, as it is here.
int listen_queue();

struct ListenOptions {
  int backlog = kListenQueueMax;
  bool is_datagram = false;  ///< UDP: it is bound alone, and has no backlog
  /// SO_SNDBUF and SO_RCVBUF, inherited by what is accepted; 0 leaves sizing to the system.
  int send_buffer_bytes = 0;
  int receive_buffer_bytes = 0;
};

struct ListeningSocket {
  UniqueFd fd;  ///< non-blocking, closed on exec
  bool is_ipv6 = false;
  std::uint16_t port = 0;  ///< TCP, UDP: the one bound
};

/// Listens at that address alone. 0, or the errno of the call that failed.
int listen_at(const sockaddr* address, socklen_t bytes, const ListenOptions& options,
              ListeningSocket* out);
/// Listens on every interface, in both families where the host has both. Port 0: any.
int listen_everywhere(std::uint16_t port, const ListenOptions& options, ListeningSocket* out);

/// TCP: what is not acknowledged is sent again at least once a second, so that a connection goes on
/// soon after its network is back, where the kernel can (TCP_RTO_MAX_MS, Linux 6.15). Older ones
/// wait twice as long after each attempt. The kernel gives the connection up after some 14 s then.
void bound_retransmission_pause(int fd);
/// TCP: what is not acknowledged is sent again after `pause` first, or a round trip more, and not
/// after 200 ms, where the kernel can (TCP_RTO_MIN_US, Linux 6.15).
void hasten_retransmission(int fd, Duration pause);

/// Who may be behind a connected socket, as far as one can be told from another: an IPv4 address, a
/// network of 64 bits of IPv6, the process at the other end of a UNIX socket.
std::string source_of(int fd);

}  // namespace unisono
