#include "rendezvous/client/standby_dial.h"

#include <sys/socket.h>

#include <cerrno>
#include <span>

#include "base/process_facts.h"
#include "rendezvous/failure/standby.h"
#include "rendezvous/messages/peer_information.h"
#include "rendezvous/sockets/sockets.h"

namespace unisono::rendezvous {

StandbyDial::StandbyDial(const World& world, Rank standby, const RejoinMessage& greeting,
                         TimePoint now)
    : world_(world),
      greeting_(encode_rejoin(greeting, world.size)),
      places_(places_of(member(standby))),
      attempt_(standby, world.rank, places_.size(), now) {}

std::vector<StandbyDial::Place> StandbyDial::places_of(const Member& standby) {
  StandbyAddress address = standby_address(standby);
  if (!address.unix_name.empty() && same_host(member(world_.rank), standby)) {
    unix_name_ = std::move(address.unix_name);
    return {Place{}};
  }
  std::vector<Place> places;
  for (std::string& host : address.hosts) places.push_back({std::move(host), address.port});
  return places;
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

DialOutcome StandbyDial::open(std::size_t place) {
  const auto& [host, port] = places_[place];
  connected_ = greeted_ = false;
  handshake_.reset();
  const bool is_unix = host.empty();
  GuardedFd fd;
  const int error =
      is_unix ? begin_connect_unix(unix_name_, &fd) : begin_connect_tcp(host, port, &fd);
  if (error != 0) return unconnected(error);
  stream_.emplace(std::move(fd));
  connected_ = is_unix;
  handshake_.emplace(world_.key, Handshake::Role::kInitiator,
                     HandshakeIdentity{world_.job_id, world_.rank, attempt_.standby(),
                                       HandshakePurpose::kControl, 0});
  stream_->queue(handshake_->take_output());
  return DialOutcome::kPending;
}

DialOutcome StandbyDial::converse() {
  if (!connected_) {
    if (!wait_ready(stream_->fd(), true, TimePoint::min())) return DialOutcome::kPending;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(stream_->fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) return unconnected(error);
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

// A full queue, a network that is down or a lack of descriptors says nothing of who listens; and
// one that could not start its arbiter lives.
DialOutcome StandbyDial::unconnected(int error) const {
  const Member& standby = member(attempt_.standby());
  const bool is_seen = see_each_other(standby, member(world_.rank));
  const bool lives = is_seen && !has_ended(static_cast<int>(standby.pid));
  const bool is_for_good = error == ECONNREFUSED || error == EAFNOSUPPORT;
  return is_for_good && !lives ? DialOutcome::kAbsent : DialOutcome::kUnreachable;
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
  return message ? answer_in((*message)->type) : DialOutcome::kFailed;
}

}  // namespace unisono::rendezvous
