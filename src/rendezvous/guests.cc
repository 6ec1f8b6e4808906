#include "rendezvous/guests.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/network.h"

namespace unisono::rendezvous {
namespace {

// When all places are taken the first byte must come this fast, so that idle strangers hold up the
// ranks behind them for moments instead of seconds.
constexpr Duration kSilenceWhenFull = std::chrono::milliseconds(100);
constexpr Duration kDescriptorPause = std::chrono::milliseconds(50);
constexpr Duration kLogWindow = std::chrono::seconds(10);
constexpr int kLinesPerWindow = 5;

}  // namespace

int Guests::accept(const Listener& listener, TimePoint now) {
  UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      paused_ = now + kDescriptorPause;
      log_line(fmt::format("rank 0: connections wait: {}; raise 'ulimit -n'", std::strerror(errno)),
               now);
    }
    return -1;
  }
  const int key = fd.get();
  std::string who = peer_text(key);
  if (const Status same = listener.is_unix ? check_same_user(key) : Status(); !same) {
    log_stranger(who, same.message(), now);
    return -1;
  }
  Guest guest{ControlStream(std::move(fd)), std::nullopt, now, std::move(who), true, false};
  if (!listener.is_unix) tune_tcp(key);
  if (listener.needs_proof) {
    guest.handshake.emplace(key_, Handshake::Role::kAcceptor,
                            HandshakeIdentity{job_id_, 0, -1, HandshakePurpose::kControl, 0});
  }
  guests_.insert_or_assign(key, std::move(guest));
  return key;
}

int Guests::add_local(UniqueFd fd, TimePoint now) {
  const int key = fd.get();
  guests_.insert_or_assign(
      key, Guest{ControlStream(std::move(fd)), std::nullopt, now, "rank 0", true, true});
  return key;
}

std::optional<Guests::Arrival> Guests::read(int fd, TimePoint now) {
  const Entry entry = guests_.find(fd);
  if (entry == guests_.end()) return std::nullopt;
  Guest& guest = entry->second;
  const bool proving = guest.handshake && !guest.handshake->done();
  const bool open = guest.stream.receive(proving ? kHandshakeBytesMax : kMessageBytesMax);
  guest.silent = guest.silent && guest.stream.input().empty();
  if (proving) {
    if (const Status proof = authenticate(&guest); !proof) {
      turn_away(entry, proof.message(), now);
      return std::nullopt;
    }
  }
  Result<std::optional<Message>> message = std::optional<Message>();
  if (!guest.handshake || guest.handshake->done()) message = guest.stream.next();
  if (message && !*message) {
    if (!open) turn_away(entry, "closed without a word", now);
    return std::nullopt;
  }
  Result<JoinMessage> join = Status(ErrorCode::kProtocol, "no greeting of a rank");
  if (message && (*message)->type == MessageType::kJoin) join = decode_join((*message)->body);
  const bool other_rank = join && guest.handshake && guest.handshake->peer() != join->member.rank;
  if (!join || other_rank) {
    if (!join) guest.stream.queue(encode_refusal(join.error()));
    turn_away(entry, join ? "joins as another rank than it proved" : join.error().message(), now);
    return std::nullopt;
  }
  Arrival arrival{std::move(guest.stream), std::move(*join), guest.handshake.has_value()};
  guests_.erase(entry);
  return arrival;
}

Status Guests::authenticate(Guest* guest) {
  const std::string_view input = guest->stream.input();
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(input.data()), input.size());
  const Status outcome = guest->handshake->consume(&bytes);
  guest->stream.drop_input(input.size() - bytes.size());
  // Also after an error: the peer may learn that its version or job differs.
  guest->stream.queue(guest->handshake->take_output());
  static_cast<void>(guest->stream.flush());
  return outcome;
}

void Guests::expire(TimePoint now) {
  // A pause that is over must not stay due, or the loop would never sleep again.
  if (paused_ <= now) paused_ = TimePoint::min();
  std::vector<Entry> late;
  for (Entry entry = guests_.begin(); entry != guests_.end(); ++entry) {
    if (due(entry->second) <= now) late.push_back(entry);
  }
  for (const Entry entry : late) turn_away(entry, "did not introduce itself in time", now);
}

TimePoint Guests::next_due() const {
  TimePoint next = kNever;
  for (const auto& [fd, guest] : guests_) next = std::min(next, due(guest));
  if (paused_ > TimePoint::min()) next = std::min(next, paused_);
  return next;
}

TimePoint Guests::due(const Guest& guest) const {
  if (guest.local) return kNever;
  const bool hurry = guest.silent && guests_.size() >= kGuestsMax;
  return guest.since + (hurry ? kSilenceWhenFull : kGuestTime);
}

void Guests::turn_away(Entry entry, std::string_view why, TimePoint now) {
  log_stranger(entry->second.who, why, now);
  entry->second.stream.close();
  guests_.erase(entry);
}

void Guests::log_stranger(std::string_view who, std::string_view why, TimePoint now) {
  log_line(fmt::format("rank 0: refused a connection from {}: {}", who, why), now);
}

void Guests::log_line(std::string line, TimePoint now) {
  if (log_window_ == TimePoint::min() || now - log_window_ >= kLogWindow) {
    log_window_ = now;
    logged_ = 0;
  }
  if (++logged_ > kLinesPerWindow) {
    ++unlogged_;
    return;
  }
  if (const int hidden = std::exchange(unlogged_, 0); hidden > 0) {
    line += fmt::format(" ({} earlier ones not shown)", hidden);
  }
  log::warning(line);
}

}  // namespace unisono::rendezvous
