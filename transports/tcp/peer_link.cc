// The life of a link. See peer_link.h.
#include "transports/tcp/peer_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/assert.h"

namespace unisono::tcp {

LinkState next_state(LinkState state, LinkEvent event) {
  switch (event) {
    case LinkEvent::kWanted:
      return state == LinkState::kIdle ? LinkState::kDialling : state;
    case LinkEvent::kAttached:
      return state <= LinkState::kDialling ? LinkState::kStanding : state;
    case LinkEvent::kLeave:
      return state == LinkState::kStanding ? LinkState::kLeaving : state;
    case LinkEvent::kEnd:
      return LinkState::kEnded;
  }
  return state;
}

PeerLink::PeerLink(Rank self, Rank peer, bool has_sums)
    : self_(self), peer_(peer), has_sums_(has_sums) {
  streams_.push_back(std::make_unique<Stream>(peer, FrameReader::Carries::kEverything, has_sums));
}

// A stream that has nothing to send gets the frame, in turns, so that an idle link is spread over
// all of them. Otherwise it waits for the one that has sent what it had first.
PostResult PeerLink::post_shared(const FrameHeader& header, std::span<const std::byte> payload,
                                 std::uint64_t token) {
  for (std::size_t i = 0; shared_->empty() && i < streams_.size(); ++i) {
    turn_ = (turn_ + 1) % streams_.size();
    if (!streams_[turn_]->has_queued()) return streams_[turn_]->post(header, payload, token);
  }
  if (shared_->full()) return PostResult::kFull;
  shared_->push(header, payload, token);
  return payload.empty() ? PostResult::kDone : PostResult::kPending;
}

// Of that communicator nothing is in `shared_`, which has what is lent, but streams may have some.
PostResult PeerLink::post_on_all(FrameHeader header) {
  const bool is_full = std::any_of(streams_.begin(), streams_.end(),
                                   [](const auto& stream) { return stream->is_full(); });
  if (is_full) return PostResult::kFull;
  header.index = static_cast<std::uint32_t>(streams_.size());
  for (auto& stream : streams_) stream->post(header, {}, 0);
  return PostResult::kDone;
}

PostResult PeerLink::post_send(const FrameHeader& header, std::span<const std::byte> payload,
                               std::uint64_t token) {
  if (state_ >= LinkState::kLeaving) return PostResult::kDone;
  if (shared_ && header.kind == FrameKind::kLeft) return post_on_all(header);
  const bool is_shared = shared_ && header.kind == FrameKind::kData && !payload.empty();
  const PostResult result =
      is_shared ? post_shared(header, payload, token) : streams_[0]->post(header, payload, token);
  if (result == PostResult::kFull) return result;
  if (header.kind == FrameKind::kData) data_bytes_ += payload.size();
  const bool is_repeated = header.offset == kAnswer;
  if (header.kind == FrameKind::kGrant && !is_repeated) granted_bytes_ += header.total_bytes;
  return result;
}

void PeerLink::cancel(std::uint64_t token) {
  if (shared_) shared_->cancel(token);
  for (auto& stream : streams_) stream->cancel(token);
}

void PeerLink::abandon(const std::byte* begin, std::size_t bytes) {
  for (auto& stream : streams_) stream->abandon(begin, bytes);
}

Admission PeerLink::admit(std::uint16_t stream, bool own_dial_connected) const {
  if (state_ >= LinkState::kLeaving) return Admission::kEnded;
  if (stream < streams_.size() && streams_[stream]->attached()) return Admission::kTaken;
  // Streams come in order: 0 first, then the next that is missing.
  const std::size_t next = state_ == LinkState::kStanding ? streams_.size() : 0;
  if (stream != next || stream >= kStreamsMax) return Admission::kUnwanted;
  if (self_ < peer_ && own_dial_connected) return Admission::kCrossing;
  return Admission::kAdmitted;
}

void PeerLink::prepare_stream() {
  streams_.reserve(kStreamsMax);
  if (!shared_ && !next_shared_) next_shared_ = std::make_unique<FrameWriter>();
  if (next_stream_) return;
  next_stream_ = std::make_unique<Stream>(peer_, FrameReader::Carries::kDataOnly, has_sums_);
}

void PeerLink::spare_stream() {
  next_stream_.reset();
  next_shared_.reset();
}

void PeerLink::attach(Connection connection) {
  if (connection.stream == 0) {
    UNISONO_ASSERT(!streams_[0]->attached(), "a link is attached once");
    state_ = next_state(state_, LinkEvent::kAttached);
  } else {
    UNISONO_ASSERT(connection.stream == streams_.size() && next_stream_,
                   "streams are prepared and attached in order");
    streams_.push_back(std::move(next_stream_));
  }
  streams_[connection.stream]->attach(std::move(connection));
  if (streams_.size() == 1) return;
  if (!shared_) shared_ = std::move(next_shared_);
  for (auto& stream : streams_) stream->keep_little_unsent();
}

// Where a granted call has failed, or the grant was lost while its message came unasked, nothing
// comes: then this link takes turns in vain.
bool PeerLink::awaits_data() const {
  std::uint64_t received = 0;
  for (const auto& stream : streams_) received += stream->received_data_bytes();
  return received < granted_bytes_;
}

bool PeerLink::progress(FrameSink& sink) {
  bool moved = false;
  // By index: a callback of the sink never adds streams, but the vector is ours to be careful with.
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = *streams_[i];
    if (stream.receive(sink)) moved = true;
    if (send_on(stream, sink)) moved = true;
  }
  say_goodbye();
  check_end(sink);
  return moved;
}

bool PeerLink::send_on(Stream& stream, FrameSink& sink) {
  if (has_shared()) stream.take_from(shared_.get());
  return stream.has_queued() && stream.send_queued(peer_, sink, awaits_data());
}

bool PeerLink::send_queued(FrameSink& sink) {
  bool moved = false;
  for (auto& stream : streams_) moved = send_on(*stream, sink) || moved;
  say_goodbye();
  return moved;
}

bool PeerLink::has_queued() const {
  return has_shared() || std::any_of(streams_.begin(), streams_.end(),
                                     [](const auto& stream) { return stream->has_queued(); });
}

bool PeerLink::send_failed() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream->send_failed(); });
}

bool PeerLink::goodbye_complete() const {
  const auto said = std::count_if(streams_.begin(), streams_.end(),
                                  [](const auto& stream) { return stream->said_goodbye(); });
  return streams_[0]->said_goodbye() &&
         static_cast<std::uint64_t>(said) >= streams_[0]->goodbye_streams();
}

void PeerLink::check_end(FrameSink& sink) {
  if (state_ == LinkState::kEnded) return;
  bool broken = false;
  for (const auto& stream : streams_) {
    broken = broken || stream->send_failed() || (stream->finished() && !stream->said_goodbye());
  }
  // A stream may break because the peer has left while its goodbye waits on another one.
  if (broken && !goodbye_complete()) drain(sink);
  if (goodbye_complete()) return end(Status(), sink);
  if (!broken) return;
  const Stream* failed = streams_[0].get();
  for (const auto& stream : streams_) {
    const bool finished = stream->finished() && !stream->said_goodbye();
    if (finished || (stream->send_failed() && !failed->finished())) failed = stream.get();
  }
  end(failed->failure(self_, peer_), sink);
}

// What has arrived is handed over before the link is reported gone. The peer may be alive and
// sending, so this ends after more than socket buffers hold.
void PeerLink::drain(FrameSink& sink) {
  constexpr int kTurnsMax = 256;
  bool moved = true;
  for (int turn = 0; moved && turn < kTurnsMax; ++turn) {
    moved = false;
    for (auto& stream : streams_) moved = stream->receive(sink) || moved;
  }
}

void PeerLink::end(const Status& cause, FrameSink& sink) {
  if (state_ == LinkState::kEnded) return;
  drop(sink);
  sink.closed(peer_, cause);
}

void PeerLink::look_for_silence(TimePoint now, Duration patience, FrameSink& sink) {
  for (const auto& stream : streams_) {
    if (!stream->is_dead(now, patience)) continue;
    const double seconds = std::chrono::duration<double>(stream->unacknowledged(now)).count();
    return end({ErrorCode::kRankFailed,
                fmt::format("the connection to rank {} ({}) is dead: its host has acknowledged "
                            "nothing for {:.1f} s; see whether the network between both is up",
                            peer_, stream->remote(), seconds),
                peer_},
               sink);
  }
}

void PeerLink::leave() {
  state_ = next_state(state_, LinkEvent::kLeave);
  say_goodbye();
}

void PeerLink::say_goodbye() {
  if (state_ != LinkState::kLeaving || has_shared()) return;
  for (auto& stream : streams_) stream->say_goodbye(static_cast<std::uint32_t>(streams_.size()));
}

bool PeerLink::settled() {
  if (state_ == LinkState::kEnded) return true;
  if (state_ != LinkState::kLeaving) return false;
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream->settled(); });
}

void PeerLink::drop(FrameSink& sink) {
  state_ = next_state(state_, LinkEvent::kEnd);
  if (shared_) shared_->drop_all([&](std::uint64_t token) { sink.sent(peer_, token); });
  for (auto& stream : streams_) stream->drop(peer_, sink);
}

}  // namespace unisono::tcp
