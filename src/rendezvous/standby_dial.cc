#include "rendezvous/standby_dial.h"

#include <sys/socket.h>

#include <algorithm>
#include <span>

#include "base/grace_periods.h"
#include "rendezvous/peer_information.h"
#include "rendezvous/sockets.h"
#include "rendezvous/standby.h"

namespace unisono::rendezvous {
StandbyDial::StandbyDial(const World& world, Rank standby, const RejoinMessage& greeting,
                         TimePoint now)
    : world_(world),
      standby_(standby),
      greeting_(encode_rejoin(greeting, world.size)),
      // The arbiter of this process does answer.
      due_(standby == world.rank ? kNever : now + grace::kStandbyAnswer) {
  const Member& there = world.members[static_cast<std::size_t>(standby)];
  const Member& here = world.members[static_cast<std::size_t>(world.rank)];
  StandbyAddress address = standby_address(there);
  if (!address.unix_name.empty() && same_host(here, there)) {
    unix_name_ = std::move(address.unix_name);
    places_.push_back({});
    return;
  }
  for (std::string& host : address.hosts) places_.push_back({std::move(host), address.port});
  std::reverse(places_.begin(), places_.end());
}

StandbyDial::~StandbyDial() {
  if (!stream_ || !greeted_) return;
  stream_->queue(encode(MessageType::kGiveUp));
  stream_->close();
}

void StandbyDial::list_awaited(std::vector<pollfd>* awaited) const {
  if (!stream_) return;
  const bool writes = !connected_ || stream_->has_output();
  awaited->push_back({stream_->fd(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
}

DialOutcome StandbyDial::advance(TimePoint now) {
  if (now >= due_) return DialOutcome::kFailed;
  if (!stream_ && now < opens_at_) return DialOutcome::kPending;
  for (;;) {
    if (!stream_) {
      if (places_.empty()) return DialOutcome::kAbsent;
      open_next();
      if (!stream_) continue;
    }
    const DialOutcome outcome = converse();
    if (outcome != DialOutcome::kFailed) return outcome;
    stream_.reset();
    if (!connected_) continue;
    // Somebody listens, and had no place for one more.
    places_.push_back(place_);
    opens_at_ = now + kTurnedAwayPause;
    return DialOutcome::kPending;
  }
}

void StandbyDial::open_next() {
  place_ = std::move(places_.back());
  places_.pop_back();
  connected_ = greeted_ = false;
  handshake_.reset();
  const bool is_unix = place_.host.empty();
  auto fd = is_unix ? connect_unix(unix_name_) : begin_connect_tcp(place_.host, place_.port);
  if (!fd) return;
  stream_.emplace(std::move(*fd));
  connected_ = is_unix;
  handshake_.emplace(
      world_.key, Handshake::Role::kInitiator,
      HandshakeIdentity{world_.job_id, world_.rank, standby_, HandshakePurpose::kControl, 0});
  stream_->queue(handshake_->take_output());
}

bool StandbyDial::is_connected() {
  pollfd entry{stream_->fd(), POLLOUT, 0};
  return ::poll(&entry, 1, 0) == 1;
}

DialOutcome StandbyDial::converse() {
  if (!connected_) {
    if (!is_connected()) return DialOutcome::kPending;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(stream_->fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
      return DialOutcome::kFailed;
    }
    tune_tcp(stream_->fd());
    connected_ = true;
  }
  if (!stream_->flush()) return DialOutcome::kFailed;
  if (handshake_ && !handshake_->done()) {
    const std::optional<bool> proved = prove();
    if (!proved) return DialOutcome::kPending;
    if (!*proved) return DialOutcome::kFailed;
  }
  if (!greeted_) {
    greeted_ = true;
    stream_->queue(greeting_);
  }
  if (!stream_->flush()) return DialOutcome::kFailed;
  return hear();
}

std::optional<bool> StandbyDial::prove() {
  const bool open = stream_->receive(kHandshakeBytesMax);
  const std::string_view input = stream_->input();
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(input.data()), input.size());
  const Status outcome = handshake_->consume(&bytes);
  stream_->drop_input(input.size() - bytes.size());
  if (!outcome || (!open && !handshake_->done())) return false;
  stream_->queue(handshake_->take_output());
  if (!stream_->flush()) return false;
  return handshake_->done() ? std::optional(true) : std::nullopt;
}

DialOutcome StandbyDial::hear() {
  const bool open = stream_->receive();
  const auto message = stream_->next();
  if (message && !*message) return open ? DialOutcome::kPending : DialOutcome::kFailed;
  if (message && (*message)->type == MessageType::kSeated) return DialOutcome::kSeated;
  if (message && (*message)->type == MessageType::kRefusal) return DialOutcome::kRefused;
  if (message && (*message)->type == MessageType::kFarewell) return DialOutcome::kLeft;
  return DialOutcome::kFailed;
}

}  // namespace unisono::rendezvous
