#include "rendezvous/client/probe_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "rendezvous/messages/control_address.h"
#include "rendezvous/messages/peer_information.h"

namespace unisono::rendezvous {
namespace {

// Whoever sends more than this at once waits for the next turn, or is not heard.
constexpr int kDatagramsPerTurn = 64;

bool is_of_one_host(const World& world) {
  return std::all_of(world.members.begin(), world.members.end(), [&](const Member& member) {
    return same_host(member, world.members.front());
  });
}

/// As a socket of that family wants it: IPv4 inside of IPv6. 0: that socket leads nowhere there.
socklen_t to_socket_address(const std::string& host, std::uint16_t port, bool is_ipv6,
                            sockaddr_storage* out) {
  in_addr four{};
  const bool is_four = ::inet_pton(AF_INET, host.c_str(), &four) == 1;
  if (!is_ipv6) {
    if (!is_four) return 0;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr = four;
    std::memcpy(out, &address, sizeof address);
    return sizeof address;
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  const std::string text = is_four ? "::ffff:" + host : host;
  if (::inet_pton(AF_INET6, text.c_str(), &address.sin6_addr) != 1) return 0;
  std::memcpy(out, &address, sizeof address);
  return sizeof address;
}

bool send_to(int fd, const std::string& datagram, const sockaddr_storage& to, socklen_t bytes) {
  const ssize_t sent = ::sendto(fd, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&to), bytes);
  return sent == static_cast<ssize_t>(kProbeBytes);
}

}  // namespace

std::optional<Listener> open_probe_port(const RendezvousPoint& point, int size, Member* self) {
  const bool may_span = may_span_hosts(point) && point.local_size != size;
  if (!may_span || point.within_process || point.silence.count() == 0) return std::nullopt;
  auto socket = bind_udp(host_to_bind(point), point.interface_address);
  if (!socket) {
    log::debug("nobody can probe this rank: " + socket.error().message());
    return std::nullopt;
  }
  add_address(kProbeLine, address_of(*socket), self);
  return std::move(*socket);
}

std::optional<ProbePort> ProbePort::make(std::optional<Listener> socket, const World& world,
                                         std::chrono::milliseconds silence) {
  if (!socket || is_of_one_host(world)) return std::nullopt;
  const auto codec = ProbeCodec::make(world.key, world.job_id);
  if (!codec) return std::nullopt;
  return ProbePort(std::move(*socket), *codec, world, silence);
}

void ProbePort::probe(Rank rank, TimePoint now) {
  if (const auto nonce = random_nonce()) prober_.begin(rank, *nonce, now);
}

std::vector<Prober::Outcome> ProbePort::serve(TimePoint now) {
  read();
  for (const Prober::Question& question : prober_.take_questions(now)) {
    if (!ask(question)) prober_.withdraw(question.rank);
  }
  return prober_.take_outcomes(now);
}

void ProbePort::read() {
  char datagram[kProbeBytes + 1];  // one more shows what is too long
  for (int i = 0; i < kDatagramsPerTurn; ++i) {
    sockaddr_storage source{};
    socklen_t bytes = sizeof source;
    const ssize_t got = ::recvfrom(fd(), datagram, sizeof datagram, MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&source), &bytes);
    // An error may be an earlier datagram's, which nobody took; the next ones wait behind it.
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0) continue;
    const auto probe = codec_.decode({datagram, static_cast<std::size_t>(got)});
    if (!probe || probe->to != world_->rank) continue;
    if (probe->kind == Probe::Kind::kAnswer) {
      prober_.on_answer(probe->from, probe->nonce);
    } else {
      const Probe answer{Probe::Kind::kAnswer, world_->rank, probe->from, probe->nonce};
      static_cast<void>(send_to(fd(), codec_.encode(answer), source, bytes));  // may get lost, too
    }
  }
}

bool ProbePort::ask(const Prober::Question& question) const {
  const Member& member = world_->members[static_cast<std::size_t>(question.rank)];
  const ControlAddress address = read_address(member.addresses, kProbeLine);
  const std::string datagram =
      codec_.encode({Probe::Kind::kQuestion, world_->rank, question.rank, question.nonce});
  bool is_sent = false;
  for (const std::string& host : address.hosts) {
    sockaddr_storage to{};
    const socklen_t bytes = to_socket_address(host, address.port, socket_.is_ipv6, &to);
    if (bytes > 0 && send_to(fd(), datagram, to, bytes)) is_sent = true;
  }
  return is_sent;
}

}  // namespace unisono::rendezvous
