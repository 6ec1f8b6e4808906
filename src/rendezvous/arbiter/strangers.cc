#include "rendezvous/arbiter/strangers.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "base/errno_text.h"
#include "base/log.h"
#include "base/network.h"
#include "base/same_user.h"
#include "base/unproven_peers.h"

namespace unisono::rendezvous {
namespace {

constexpr Duration kDescriptorPause = std::chrono::milliseconds(50);

GuardedFd accept_at(const Listener& listener) {
  const NoFork no_fork;
  const int fd = ::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  return GuardedFd(UniqueFd(fd), no_fork);
}

}  // namespace

bool Strangers::accepting(TimePoint now) const {
  return now >= paused_ && (!is_full() || least_promising_at(now) >= 0);
}

std::vector<int> Strangers::held() const {
  std::vector<int> fds;
  for (const auto& [fd, stranger] : strangers_) fds.push_back(fd);
  return fds;
}

int Strangers::least_promising_at(TimePoint now) const {
  std::vector<UnprovenPeer> peers;
  std::vector<int> fds;
  for (const auto& [fd, stranger] : strangers_) {
    if (!stranger.is_unproven()) continue;
    peers.push_back({stranger.source, stranger.greeted, now - stranger.advanced});
    fds.push_back(fd);
  }
  const std::size_t chosen = least_promising(peers);
  return chosen == kNobody ? -1 : fds[chosen];
}

void Strangers::evict(int fd, TimePoint now) {
  const Entry entry = strangers_.find(fd);
  if (entry == strangers_.end()) return;
  log_stranger(entry->second.who, "it had come no further when another needed its place", now);
  // A rank that is a victim must not take it for a refusal of its key.
  entry->second.stream.reset();
  strangers_.erase(entry);
}

int Strangers::accept(const Listener& listener, TimePoint now) {
  GuardedFd fd = accept_at(listener);
  if (!fd) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      paused_ = now + kDescriptorPause;
      say(fmt::format("connections wait: {}", errno_text(errno)), now);
    }
    return -1;
  }
  const int key = fd.get();
  std::string who = peer_text(key);
  if (const Status same = listener.is_unix ? check_same_user(key) : Status(); !same) {
    log_stranger(who, same.message(), now);
    return -1;
  }
  if (is_full()) evict(least_promising_at(now), now);
  std::string source = source_of(key);
  Stranger stranger{
      ControlStream(std::move(fd)), std::nullopt, now, std::move(who), std::move(source), now};
  if (!listener.is_unix) tune_tcp(key);
  if (listener.needs_proof) {
    stranger.handshake.emplace(host_.key, Handshake::Role::kAcceptor,
                               HandshakeIdentity{host_.job_id, host_.rank, -1, host_.purpose, 0});
  }
  strangers_.insert_or_assign(key, std::move(stranger));
  return key;
}

int Strangers::add_local(GuardedFd fd, TimePoint now) {
  const int key = fd.get();
  strangers_.insert_or_assign(key, Stranger{ControlStream(std::move(fd)), std::nullopt, now,
                                            "rank 0", "", now, true, true});
  return key;
}

std::optional<Strangers::Arrival> Strangers::read(int fd, TimePoint now) {
  const Entry entry = strangers_.find(fd);
  if (entry == strangers_.end()) return std::nullopt;
  Stranger& stranger = entry->second;
  const bool proving = stranger.handshake && !stranger.handshake->done();
  const bool open = stranger.stream.receive(proving ? kHandshakeBytesMax : kMessageBytesMax);
  if (proving) {
    if (const Status proof = authenticate(&stranger); !proof) {
      turn_away(entry, proof.message(), now);
      return std::nullopt;
    }
    if (!stranger.greeted && stranger.handshake->peer() >= 0) {
      stranger.greeted = true;
      stranger.advanced = now;
    }
  }
  Result<std::optional<Message>> message = std::optional<Message>();
  if (!stranger.handshake || stranger.handshake->done()) message = stranger.stream.next();
  if (message && !*message) {
    if (!open) turn_away(entry, "closed without a word", now);
    return std::nullopt;
  }
  JoinMessage join;
  RejoinMessage rejoin;
  const Result<Rank> rank = !message             ? Result<Rank>(message.error())
                            : awaits_launchers() ? stranger.handshake->peer()
                                                 : read_greeting(**message, &join, &rejoin);
  const bool other_rank = rank && stranger.handshake && stranger.handshake->peer() != *rank;
  if (!rank || other_rank) {
    if (!rank) stranger.stream.queue(encode_refusal(rank.error()));
    turn_away(entry, rank ? "joins as another rank than it proved" : rank.error().message(), now);
    return std::nullopt;
  }
  std::string launcher = awaits_launchers() ? std::string((*message)->body) : "";
  Arrival arrival{std::move(stranger.stream), std::move(join), std::move(rejoin),
                  std::move(launcher),        *rank,           stranger.handshake.has_value()};
  strangers_.erase(entry);
  return arrival;
}

Result<Rank> Strangers::read_greeting(const Message& message, JoinMessage* join,
                                      RejoinMessage* rejoin) const {
  const bool is_again = host_.met_size > 0;
  if (message.type != (is_again ? MessageType::kRejoin : MessageType::kJoin)) {
    return Status(ErrorCode::kProtocol, "no greeting of a rank");
  }
  if (!is_again) {
    UNISONO_ASSIGN(*join, decode_join(message.body));
    return join->member.rank;
  }
  UNISONO_ASSIGN(*rejoin, decode_rejoin(message.body, host_.met_size));
  if (rejoin->job_id == host_.job_id) return rejoin->rank;
  return Status(ErrorCode::kProtocol, "a rank of another job");
}

Status Strangers::authenticate(Stranger* stranger) {
  const std::string_view input = stranger->stream.input();
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(input.data()), input.size());
  const Status outcome = stranger->handshake->consume(&bytes);
  stranger->stream.drop_input(input.size() - bytes.size());
  // Also after an error: the peer may learn that its version or job differs.
  stranger->stream.queue(stranger->handshake->take_output());
  static_cast<void>(stranger->stream.flush());
  return outcome;
}

void Strangers::expire(TimePoint now) {
  // A pause that is over must not stay due, or the loop would never sleep again.
  if (paused_ <= now) paused_ = TimePoint::min();
  std::vector<Entry> late;
  for (Entry entry = strangers_.begin(); entry != strangers_.end(); ++entry) {
    if (due(entry->second) <= now) late.push_back(entry);
  }
  for (const Entry entry : late) turn_away(entry, "did not introduce itself in time", now);
}

TimePoint Strangers::next_due(TimePoint now) const {
  TimePoint next = kNever;
  for (const auto& [fd, stranger] : strangers_) {
    next = std::min(next, due(stranger));
    const TimePoint turn_over = stranger.advanced + unproven_turn(stranger.greeted);
    if (is_full() && stranger.is_unproven() && turn_over > now) next = std::min(next, turn_over);
  }
  if (paused_ > TimePoint::min()) next = std::min(next, paused_);
  return next;
}

TimePoint Strangers::due(const Stranger& stranger) const {
  return stranger.local ? kNever : stranger.since + kStrangerTime;
}

void Strangers::turn_away(int fd, std::string_view why, TimePoint now) {
  const Entry entry = strangers_.find(fd);
  if (entry != strangers_.end()) turn_away(entry, why, now);
}

void Strangers::turn_away(Entry entry, std::string_view why, TimePoint now) {
  log_stranger(entry->second.who, why, now);
  entry->second.stream.close();
  strangers_.erase(entry);
}

void Strangers::log_stranger(std::string_view who, std::string_view why, TimePoint now) {
  say(fmt::format("refused a connection from {}: {}", who, why), now);
}

void Strangers::say(std::string_view what, TimePoint now) {
  const std::string line =
      fmt::format("{} {}: {}", awaits_launchers() ? "node" : "rank", host_.rank, what);
  if (!host_.say) return lines_.write(log::Level::kWarning, now, line);
  lines_.pass(now, line, host_.say);
}

}  // namespace unisono::rendezvous
