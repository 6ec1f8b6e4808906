// The links of one rank to the others of its host. Owned by the rank's engine, on its thread.
#include "transports/shm/shm_transport.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace unisono::shm {
namespace {

// So many records of one peer are handed over before the next peer has its turn.
constexpr int kRecordsPerPoll = 32;
// A grant costs as much as it saves where the message goes through the ring anyway.
constexpr std::size_t kUnaskedBytesMax = std::size_t{64} << 10;

}  // namespace

ShmTransport::Link::Link(Rank self, Rank peer, const RingGeometry& incoming, OpenRing* open_ring,
                         const Loans* loans, int* sending_links)
    : self_(self),
      peer_(peer),
      buffers_(std::make_unique<PassedBuffers>(incoming.buffer_count, self < peer)),
      receiver_(incoming, peer, loans, buffers_.get()),
      open_ring_(open_ring),
      loans_(loans),
      sending_links_(sending_links) {
  buffers_->add_theirs(incoming.buffers, incoming.buffer_bytes);
}

bool ShmTransport::Link::sends_unasked(std::span<const std::byte> payload) const {
  if (payload.size() > kUnaskedBytesMax) return false;
  const bool may_lend = loans_ != nullptr && (!sender_ || sender_->may_lend());
  return !may_lend || !loans_->would_lend(peer_, payload);
}

MemoryHandle ShmTransport::Link::lend(const FrameHeader& header,
                                      std::span<const std::byte> payload) {
  const bool may = loans_ != nullptr && payload.size() >= loans_->bytes_min() && sender_ &&
                   sender_->may_lend() && !sender_->writing();
  if (!may) return {};
  const MemoryHandle lent = loans_->lend(peer_, header, payload);
  if (lent.path != MemoryPath::kSingleCopy) return lent;
  const ReceivedMessages* const followed = self_ > peer_ ? &receiver_.received() : nullptr;
  const bool lends = sender_->may_lend_private() &&
                     (!loans_->tries_private() || sender_->lends_private(header, followed));
  return lends ? lent : MemoryHandle{};
}

std::size_t ShmTransport::Link::frame_bytes(const FrameHeader& header,
                                            std::span<const std::byte> rest) {
  const std::size_t most = std::min(rest.size(), kLentPayloadMax);
  const bool is_lent =
      most > kFramePayloadMax && lend(header, rest.first(most)).path != MemoryPath::kNone;
  return is_lent ? most : std::min(most, kFramePayloadMax);
}

RingSender::Pushed ShmTransport::Link::push(const FrameHeader& header,
                                            std::span<const std::byte> payload) {
  const MemoryHandle lent = lend(header, payload);
  return lent.path == MemoryPath::kNone ? sender_->push(header, payload)
                                        : sender_->lend(header, payload, lent);
}

PostResult ShmTransport::Link::post_send(const FrameHeader& header,
                                         std::span<const std::byte> payload, std::uint64_t token) {
  UNISONO_ASSERT(header.payload_bytes == payload.size() && payload.size() <= kLentPayloadMax,
                 "a frame's header and payload must agree and keep the bound");
  if (closed_ || failed_) return PostResult::kDone;
  if (sender_->writing()) return PostResult::kFull;
  if (header.kind == FrameKind::kGrant) receiver_.grant(header);
  receiver_.begin_sending(header);
  switch (push(header, payload)) {
    case RingSender::Pushed::kWhole:
      receiver_.end_sending();
      return PostResult::kDone;
    case RingSender::Pushed::kNothing:
      return PostResult::kFull;
    case RingSender::Pushed::kPart:
      pending_ = true;
      pending_token_ = token;
      count_sending();
      return PostResult::kPending;
    case RingSender::Pushed::kBroken:
      break;
  }
  fail(nonsense());
  return PostResult::kDone;
}

void ShmTransport::Link::cancel(std::uint64_t token) {
  if (!pending_ || pending_token_ != token) return;
  pending_ = false;
  if (!sender_->detach()) failed_ = true;  // why is said where memory may be taken
  count_sending();
}

// After whatever may have changed sending(): so that who asks for all links need not look at each.
void ShmTransport::Link::count_sending() {
  if (sending() == is_counted_) return;
  is_counted_ = !is_counted_;
  *sending_links_ += is_counted_ ? 1 : -1;
}

void ShmTransport::Link::abandon(const std::byte* begin, std::size_t bytes) {
  receiver_.abandon(begin, bytes);
}

bool ShmTransport::Link::poll(FrameSink& sink) {
  if (closed_) return false;
  if (failed_) {
    shut(failure_.ok() ? no_copy() : failure_, sink);
    return true;
  }
  bool moved = sending() && poll_send(sink);
  // Looked at before the ring is read: what the peer sent before it left is found below.
  const RingLeft left = sender_ ? sender_->reader_left() : RingLeft::kNot;
  const bool received = !closed_ && poll_receive(sink);
  moved |= received;
  if (left != RingLeft::kNot && !received && !closed_) {
    shut(reader_gone(left), sink);
    moved = true;
  }
  return moved;
}

bool ShmTransport::Link::poll_send(FrameSink& sink) {
  switch (sender_->resume()) {
    case RingSender::Pushed::kWhole:
      count_sending();
      return_pending(sink);
      return true;
    case RingSender::Pushed::kBroken:
      shut(nonsense(), sink);
      return true;
    default:
      return false;
  }
}

bool ShmTransport::Link::poll_receive(FrameSink& sink) {
  for (int taken = 0; taken < kRecordsPerPoll; ++taken) {
    // Copying takes long: what the records before let this rank send goes out first, so that two
    // ranks that lend to each other copy at the same time.
    if (taken > 0 && receiver_.is_lent_next()) return true;
    switch (receiver_.take(sink)) {
      case RingReceiver::Took::kNothing:
        return taken > 0;
      case RingReceiver::Took::kRecord:
        break;
      case RingReceiver::Took::kStep:
        return true;
      case RingReceiver::Took::kEnd:
        shut(receiver_.end(), sink);
        return true;
    }
  }
  return true;
}

// The state is changed before each call of the sink: the sink may post at once.
void ShmTransport::Link::return_pending(FrameSink& sink) {
  if (!std::exchange(pending_, false)) return;
  receiver_.end_sending();
  sink.sent(peer_, pending_token_);
}

void ShmTransport::Link::end_lending() {
  loans_ = nullptr;
  if (sender_) sender_->withdraw();
  count_sending();
}

void ShmTransport::Link::fail(Status cause) {
  failed_ = true;
  failure_ = std::move(cause);
  count_sending();
}

void ShmTransport::Link::give_up(FrameSink& sink) {
  closed_ = true;
  end_lending();
  return_pending(sink);
}

void ShmTransport::Link::shut(const Status& cause, FrameSink& sink) {
  give_up(sink);
  sink.closed(peer_, cause);
}

Status ShmTransport::Link::reader_gone(RingLeft how) const {
  if (how == RingLeft::kGoodbye && !receiver_.reading()) return Status();
  return Status(
      ErrorCode::kRankFailed,
      "rank " + std::to_string(peer_) + " ended without goodbye on its shared-memory ring", peer_);
}

Status ShmTransport::Link::nonsense() const {
  return Status(ErrorCode::kProtocol,
                "rank " + std::to_string(peer_) +
                    " wrote an impossible word to the shared-memory ring from rank " +
                    std::to_string(self_) + ", which no correct peer writes",
                peer_);
}

Status ShmTransport::Link::no_ring(const Status& why) const {
  return Status(why.code(),
                "rank " + std::to_string(self_) + " has no shared-memory ring to rank " +
                    std::to_string(peer_) + ": " + why.message(),
                self_);
}

Status ShmTransport::Link::no_copy() const {
  return Status(ErrorCode::kOutOfResources,
                "rank " + std::to_string(self_) + " has no memory left to end a frame to rank " +
                    std::to_string(peer_) + " whose call has failed",
                self_);
}

void ShmTransport::Link::activate() {
  if (sender_ || closed_ || failed_) return;
  const Result<RingMemory> memory = (*open_ring_)(self_, peer_);
  if (!memory) return fail(no_ring(memory.error()));
  const Result<RingGeometry> geometry = RingGeometry::of(*memory);
  if (!geometry) return fail(no_ring(geometry.error()));
  UNISONO_ASSERT(geometry->buffer_count == buffers_->count(), "both rings have the same size");
  buffers_->add_own(geometry->buffers, geometry->buffer_bytes);
  sender_.emplace(*geometry, buffers_.get());
}

void ShmTransport::Link::leave(RingLeft how) {
  const bool reached = !std::exchange(closed_, true) && !failed_;
  end_lending();
  if (reached && sender_) sender_->leave(how);
  receiver_.leave(how == RingLeft::kAbandoned ? how : RingLeft::kGoodbye);
}

Result<std::unique_ptr<Transport>> ShmTransport::make(Rank self, std::vector<Rank> peers,
                                                      OpenRing open_ring,
                                                      std::unique_ptr<Loans> loans) {
  std::unique_ptr<ShmTransport> transport(
      new ShmTransport(self, std::move(open_ring), std::move(loans)));
  transport->links_.reserve(peers.size());
  for (const Rank peer : peers) UNISONO_TRY(transport->add_peer(peer));
  return std::unique_ptr<Transport>(std::move(transport));
}

Status ShmTransport::add_peer(Rank peer) {
  UNISONO_ASSERT(peer >= 0 && peer != self_, "a peer is another rank");
  UNISONO_ASSIGN(const RingMemory memory, (*open_ring_)(peer, self_));
  UNISONO_ASSIGN(const RingGeometry geometry, RingGeometry::of(memory));
  const std::size_t index = static_cast<std::size_t>(peer);
  if (link_of_rank_.size() <= index) link_of_rank_.resize(index + 1, -1);
  link_of_rank_[index] = static_cast<int>(links_.size());
  links_.emplace_back(self_, peer, geometry, open_ring_.get(), loans_.get(), &sending_links_);
  return Status();
}

ShmTransport::~ShmTransport() { leave_all(false); }

Endpoint& ShmTransport::endpoint(Rank peer) {
  const std::size_t index = static_cast<std::size_t>(peer);
  UNISONO_ASSERT(index < link_of_rank_.size() && link_of_rank_[index] >= 0,
                 "the peer must be a rank of this host");
  Link& link = links_[static_cast<std::size_t>(link_of_rank_[index])];
  link.activate();
  return link;
}

// A ring that is idle costs one load of its next header line: no doorbell is needed to notice a
// peer that starts to use its ring. Where nothing moves all links have been looked at.
bool ShmTransport::poll(FrameSink& sink) {
  bool moved = false;
  if (links_.size() <= kLinksPerTurn) {
    for (Link& link : links_) moved |= link.poll(sink);
    return moved;
  }
  for (std::size_t seen = 0; seen < links_.size() && !moved; seen += kLinksPerTurn) {
    moved = poll_busy(sink);
    moved |= poll_next(sink);
  }
  return moved;
}

bool ShmTransport::poll_busy(FrameSink& sink) {
  bool moved = false;
  for (auto link = busy_.begin(); link != busy_.end(); ++link) {
    if (!links_[*link].poll(sink)) continue;
    std::rotate(busy_.begin(), link, link + 1);
    moved = true;
  }
  return moved;
}

bool ShmTransport::poll_next(FrameSink& sink) {
  const std::size_t end = std::min(next_ + kLinksPerTurn, links_.size());
  bool moved = false;
  for (std::size_t i = next_; i < end; ++i) {
    const bool link_moved = links_[i].poll(sink);
    moved |= link_moved;
    if (!link_moved && !links_[i].sending()) continue;
    auto place = std::find(busy_.begin(), busy_.end(), i);
    if (place == busy_.end()) --place;
    *place = i;
    std::rotate(busy_.begin(), place, place + 1);
  }
  next_ = end == links_.size() ? 0 : end;
  return moved;
}

bool ShmTransport::has_unsent() const { return sending_links_ > 0; }

void ShmTransport::give_up(Rank peer, FrameSink& sink) {
  const std::size_t index = static_cast<std::size_t>(peer);
  if (index >= link_of_rank_.size() || link_of_rank_[index] < 0) return;
  links_[static_cast<std::size_t>(link_of_rank_[index])].give_up(sink);
}

void ShmTransport::close(TimePoint deadline, FrameSink& sink) {
  if (left_) return;
  // What the ring has room for arrives without waiting for its reader.
  for (Link& link : links_) link.end_lending();
  // Receiving goes on meanwhile: the peer may be closing too, with its ring to here full.
  while (has_unsent() && Clock::now() < deadline) {
    if (!poll(sink)) std::this_thread::yield();
  }
  leave_all(true);
  for (Link& link : links_) link.return_pending(sink);
}

void ShmTransport::leave_all(bool with_goodbye) {
  if (std::exchange(left_, true)) return;
  for (Link& link : links_) {
    const RingLeft closing = link.sending() ? RingLeft::kUnfinished : RingLeft::kGoodbye;
    link.leave(with_goodbye ? closing : RingLeft::kAbandoned);
  }
}

}  // namespace unisono::shm
