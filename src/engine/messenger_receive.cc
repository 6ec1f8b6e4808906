// The receiving half of the messenger: matching what arrives with what is posted.
#include <algorithm>
#include <new>
#include <utility>

#include "base/communicator_id.h"
#include "base/direct_memory.h"
#include "base/make_room.h"
#include "engine/idle.h"
#include "engine/messenger_state.h"

namespace unisono {
namespace {

// Where the sender must have cut it: then no two pieces overlap in part.
bool is_piece(const FrameHeader& header, std::size_t message_bytes) {
  if (header.total_bytes != message_bytes || header.offset > message_bytes) return false;
  const std::size_t rest = message_bytes - static_cast<std::size_t>(header.offset);
  const bool is_whole_pieces =
      header.payload_bytes > 0 && header.payload_bytes % kFramePayloadMax == 0;
  return header.offset % kFramePayloadMax == 0 && header.payload_bytes <= rest &&
         (is_whole_pieces || header.payload_bytes == rest) && (rest > 0 || message_bytes == 0);
}

// An empty message is one piece.
std::size_t pieces_in(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kFramePayloadMax - 1) / kFramePayloadMax);
}

}  // namespace

Messenger::Posted* Messenger::acquire_posted() {
  if (free_posted_.empty()) {
    posted_pool_.push_back(std::make_unique<Posted>());
    free_posted_.reserve(posted_pool_.size());
    free_posted_.push_back(posted_pool_.back().get());
  }
  Posted* posted = free_posted_.back();
  free_posted_.pop_back();
  posted->reset();
  return posted;
}

bool Messenger::receive(Rank rank, const MessageKey& key, const CallRecord& record,
                        std::byte* target, std::size_t bytes, MessageOwner& owner,
                        std::uint32_t slot) {
  Peer& peer = use(rank);
  Posted* posted = acquire_posted();
  posted->peer = rank;
  posted->key = key;
  posted->record = record;
  posted->target = target;
  posted->bytes = posted->remaining = bytes;
  posted->owner = &owner;
  posted->slot = slot;
  if (Arrival* arrival = find_arrival(peer, key)) return take_arrival(peer, arrival, posted);
  peer.posted.push_back(posted);
  // What a peer without credit has not sent by now it can only send when asked.
  if (!is_small(peer, bytes) || is_spent(peer, channel(peer, key.communicator)))
    grant(peer, posted);
  return false;
}

bool Messenger::receive_tagged(Rank rank, const MessageKey& key, std::byte* target,
                               std::size_t bytes, TaggedResult* result, MessageOwner& owner,
                               std::uint32_t slot) {
  Posted* posted = acquire_posted();
  posted->peer = rank;
  posted->key = key;
  posted->tagged = true;
  posted->target = target;
  posted->bytes = posted->remaining = bytes;
  posted->result = result;
  posted->owner = &owner;
  posted->slot = slot;
  if (rank != kAnyRank) use(rank);
  for (Peer* peer : active_) {
    if (rank != kAnyRank && peer->rank != rank) continue;
    for (auto& arrival : peer->arrivals) {
      if (arrival->claimed == nullptr && arrival->key.communicator == key.communicator &&
          arrival->key.frame_class == FrameClass::kPointToPoint &&
          arrival->key.index == key.index) {
        return take_arrival(*peer, arrival.get(), posted);
      }
    }
  }
  calls(key.communicator).tagged.push_back(posted);
  for (Peer* peer : active_) {
    if (rank != kAnyRank && peer->rank != rank) continue;
    Channel* const from = find_channel(*peer, key.communicator);
    if (from == nullptr || !from->is_heard()) continue;
    if (is_spent(*peer, *from)) want(*peer, *from, key.index);
  }
  return false;
}

bool Messenger::take_awaited(Rank rank, const MessageKey& key, std::span<std::byte> room,
                             int looks) {
  Peer& peer = use(rank);
  Channel* const from = find_channel(peer, key.communicator);
  const std::size_t cost = credit_cost(room.size());
  // Receives and messages before it come first, and so do those that wait for its credit.
  const bool may_be_next = from != nullptr && from->is_heard() && !peer.closed &&
                           peer.arrivals.empty() && from->calls->tagged.empty() &&
                           from->held_back.empty();
  if (!may_be_next || !has_credit(peer, *from, cost)) return false;
  AwaitedMessage awaited{key.communicator, key.index, room};
  TakeResult result = peer.endpoint->take_awaited(awaited);
  for (; result == TakeResult::kNothing && looks > 1; --looks) {
    cpu_relax();
    result = peer.endpoint->take_awaited(awaited);
  }
  if (result != TakeResult::kTaken) return false;
  from->held += cost;
  return_credit(peer, *from, cost);
  on_credit(peer, *from, awaited.credit);
  return true;
}

// Binds a posted receive to a message that was there before it. True when it is done.
bool Messenger::take_arrival(Peer& peer, Arrival* arrival, Posted* posted) {
  FrameHeader header;
  header.communicator = arrival->key.communicator;
  header.frame_class = arrival->key.frame_class;
  header.index = arrival->key.index;
  header.sequence = arrival->key.sequence;
  header.total_bytes = arrival->bytes;
  header.record = arrival->record;
  if (!posted->tagged && !fits(peer, *posted, header)) {
    peer.posted.push_back(posted);  // stays until the communicator's failure ends it
    return false;
  }
  if (posted->tagged) {
    posted->tagged = false;
    posted->peer = peer.rank;
    posted->key = arrival->key;
    posted->record = arrival->record;
    posted->discard = arrival->bytes > posted->bytes;
    posted->bytes = posted->remaining = arrival->bytes;
    *posted->result = {peer.rank, arrival->key.index, arrival->bytes};
  }
  if (arrival->announced) {
    return_credit(peer, channel(peer, posted->key.communicator), arrival->cost);
    erase_arrival(peer, arrival);
    peer.posted.push_back(posted);
    grant(peer, posted);
    return false;
  }
  if (!arrival->complete) {
    arrival->claimed = posted;
    return false;
  }
  consume(peer, arrival, posted);
  return true;
}

// Moves a wholly arrived eager message to its receive; both are released.
void Messenger::consume(Peer& peer, Arrival* arrival, Posted* posted) {
  const std::span<const std::byte> bytes(arrival->buffer.data(), arrival->bytes);
  if (!posted->discard && !bytes.empty()) {
    if (posted->target != nullptr) {
      copy_bytes(posted->target, bytes.data(), bytes.size());
    } else {
      posted->owner->message_piece(posted->slot, 0, bytes);
    }
  }
  return_credit(peer, channel(peer, arrival->key.communicator), arrival->cost);
  erase_arrival(peer, arrival);
  free_posted_.push_back(posted);
}

void Messenger::grant(Peer& peer, Posted* posted, std::uint64_t offset) {
  posted->granted = true;
  post_control(peer, FrameKind::kGrant, posted->key, posted->record, posted->bytes, offset);
}

void Messenger::complete(Peer& peer, Posted* posted) {
  const auto found = std::find(peer.posted.begin(), peer.posted.end(), posted);
  UNISONO_ASSERT(found != peer.posted.end(), "a completed receive was not posted");
  peer.posted.erase(found);
  MessageOwner* const owner = posted->owner;
  const std::uint32_t slot = posted->slot;
  free_posted_.push_back(posted);
  owner->message_done(slot);
}

Messenger::Posted* Messenger::find_posted(Peer& peer, const MessageKey& key) {
  for (Posted* posted : peer.posted) {
    if (posted->key == key) return posted;
  }
  return nullptr;
}

// The oldest tagged receive that this message satisfies becomes a posted one.
Messenger::Posted* Messenger::match_tagged(Peer& peer, const FrameHeader& header) {
  Calls* known = calls_heard_of(peer, header.communicator);
  if (known == nullptr) return nullptr;
  auto& tagged = known->tagged;
  for (auto it = tagged.begin(); it != tagged.end(); ++it) {
    Posted* posted = *it;
    if (posted->key.index != header.index) continue;
    if (posted->peer != kAnyRank && posted->peer != peer.rank) continue;
    tagged.erase(it);
    posted->tagged = false;
    posted->peer = peer.rank;
    posted->key = key_of(header);
    posted->record = header.record;
    posted->discard = header.total_bytes > posted->bytes;
    posted->bytes = posted->remaining = header.total_bytes;
    *posted->result = {peer.rank, header.index, static_cast<std::size_t>(header.total_bytes)};
    peer.posted.push_back(posted);
    return posted;
  }
  return nullptr;
}

Messenger::Arrival* Messenger::find_arrival(Peer& peer, const MessageKey& key) {
  for (auto& arrival : peer.arrivals) {
    if (arrival->claimed == nullptr && arrival->key == key) return arrival.get();
  }
  return nullptr;
}

// There are as many as the peer has spent credit on, and one per tag that it was told to announce.
Messenger::Arrival* Messenger::new_arrival(Peer& peer, const FrameHeader& header,
                                           std::size_t cost) {
  std::unique_ptr<Arrival> arrival;
  if (peer.free_arrivals.empty()) {
    arrival = std::make_unique<Arrival>();
    make_room(peer.arrivals);
    peer.free_arrivals.reserve(peer.arrivals.capacity());  // for keep_arrival()
  } else {
    arrival = std::move(peer.free_arrivals.back());
    peer.free_arrivals.pop_back();
    peer.kept_bytes -= arrival->buffer.capacity();
  }
  arrival->key = key_of(header);
  arrival->record = header.record;
  arrival->bytes = static_cast<std::size_t>(header.total_bytes);
  arrival->cost = cost;
  arrival->announced = header.kind == FrameKind::kAnnounce;
  arrival->complete = false;
  arrival->claimed = nullptr;
  peer.arrivals.push_back(std::move(arrival));
  return peer.arrivals.back().get();
}

// Keeps it for a later message. All buffers that are kept hold no more than the peer's credit: else
// each would grow to a large message in time. There is room in the list.
void Messenger::keep_arrival(Peer& peer, std::unique_ptr<Arrival> arrival) {
  const std::size_t bytes = arrival->buffer.capacity();
  if (peer.kept_bytes + bytes > peer.traits.eager_credit_bytes) {
    arrival->buffer = {};
  } else {
    peer.kept_bytes += bytes;
  }
  peer.free_arrivals.push_back(std::move(arrival));
}

void Messenger::erase_arrival(Peer& peer, Arrival* arrival) {
  const auto found = std::find_if(
      peer.arrivals.begin(), peer.arrivals.end(),
      [&](const std::unique_ptr<Arrival>& candidate) { return candidate.get() == arrival; });
  UNISONO_ASSERT(found != peer.arrivals.end(), "an arrival was erased twice");
  keep_arrival(peer, std::move(*found));
  peer.arrivals.erase(found);
}

// A collective message whose size or record differs from what was posted.
bool Messenger::fits(Peer& peer, const Posted& posted, const FrameHeader& header) {
  if (header.frame_class == FrameClass::kPointToPoint) return header.total_bytes == posted.bytes;
  if (!(header.record == posted.record)) {
    events_.mismatch(header.communicator, peer.rank, header.record, posted.record);
    return false;
  }
  if (header.total_bytes != posted.bytes) {
    events_.counts_differ(header.communicator, peer.rank,
                          "sent " + std::to_string(header.total_bytes) + " bytes where " +
                              std::to_string(posted.bytes) + " were expected");
    return false;
  }
  return true;
}

bool Messenger::check_record(Rank peer, const MessageKey& key, const CallRecord& theirs) {
  if (key.frame_class != FrameClass::kCollective) return true;
  const CallRecord* const ours = events_.find_call(key.communicator, key.sequence);
  if (ours == nullptr || *ours == theirs) return true;
  events_.mismatch(key.communicator, peer, theirs, *ours);
  return false;
}

// A transport is in the midst of its work here, which nothing may end.
Placement Messenger::place(Rank rank, const FrameHeader& header) {
  try {
    return place_frame(use(rank), header);
  } catch (const std::bad_alloc&) {
    lose(rank, header);
    return {};
  }
}

void Messenger::received(Rank rank, const FrameHeader& header) {
  try {
    take_frame(use(rank), header);
  } catch (const std::bad_alloc&) {
    lose(rank, header);
  }
}

void Messenger::lose(Rank rank, const FrameHeader& header) {
  try {
    lose_known(use(rank), header);
  } catch (const std::bad_alloc&) {
    is_deaf_ = true;
    for (Peer* peer : active_) peer->closed = true;
    events_.no_memory(kEveryCommunicator);
  }
}

// Nothing more of the peer counts in that communicator, which fails: a later message would be taken
// for this one.
void Messenger::lose_known(Peer& peer, const FrameHeader& header) {
  if (header.kind == FrameKind::kEager) drop_eager(peer);
  Channel* const channel = heard_channel(peer, header.communicator);
  if (channel == nullptr || !channel->is_heard()) return;
  channel->broken = channel->lost_frames = true;
  if (channel->calls->early < 0) events_.no_memory(header.communicator);
}

Placement Messenger::place_frame(Peer& peer, const FrameHeader& header) {
  Channel* const channel = heard_channel(peer, header.communicator);
  if (channel == nullptr || !channel->is_heard()) return {};
  switch (header.kind) {
    case FrameKind::kEager:
      return place_eager(peer, *channel, header);
    case FrameKind::kData:
      return place_data(peer, *channel, header);
    default:
      return {};
  }
}

Placement Messenger::place_eager(Peer& peer, Channel& channel, const FrameHeader& header) {
  if (header.payload_bytes != header.total_bytes) {
    violate(peer, channel, "sent an eager frame that is not the whole of its message");
    return {};
  }
  const std::size_t cost = credit_cost(header.payload_bytes);
  if (!take_credit(peer, channel, cost)) {
    violate(peer, channel, "sent more eager bytes than it had credit for");
    return {};
  }
  Posted* posted = header.frame_class == FrameClass::kPointToPoint
                       ? match_tagged(peer, header)
                       : find_posted(peer, key_of(header));
  if (posted != nullptr) {
    if (!fits(peer, *posted, header)) return {};
    if (!posted->pieces.place(0)) {
      violate(peer, channel, "sent eagerly what it has sent in pieces");
      return {};
    }
    peer.eager_posted = posted;
    if (posted->discard) return {};
    if (posted->target != nullptr) return {Placement::Kind::kInto, posted->target};
    return {Placement::Kind::kDeliver, nullptr};
  }
  if (!check_record(peer.rank, key_of(header), header.record)) return {};
  Arrival* const arrival = peer.eager_arrival = new_arrival(peer, header, cost);
  if (arrival->buffer.size() < arrival->bytes) arrival->buffer.resize(arrival->bytes);
  return {Placement::Kind::kInto, arrival->buffer.data()};
}

Placement Messenger::place_data(Peer& peer, Channel& channel, const FrameHeader& header) {
  Posted* const posted = find_posted(peer, key_of(header));
  if (posted == nullptr || !posted->granted) {
    // Or its receive was cancelled: then the communicator has failed already.
    violate(peer, channel, "sent data that it had not been asked for");
    return {};
  }
  if (!is_piece(header, posted->bytes)) {
    violate(peer, channel,
            "sent " + std::to_string(header.payload_bytes) + " bytes at " +
                std::to_string(header.offset) + ", which is no piece of a message of " +
                std::to_string(posted->bytes));
    return {};
  }
  posted->placed += header.payload_bytes;
  const bool is_new =
      posted->discard
          ? posted->placed <= posted->bytes
          : posted->pieces.place(static_cast<std::size_t>(header.offset / kFramePayloadMax),
                                 pieces_in(header.payload_bytes));
  if (!is_new) {
    violate(peer, channel, "sent the same piece of a message twice");
    return {};
  }
  if (posted->discard) return {};
  if (posted->target != nullptr) {
    return {Placement::Kind::kInto, posted->target + header.offset};
  }
  return {Placement::Kind::kDeliver, nullptr};
}

void Messenger::deliver(Rank rank, const FrameHeader& header, std::size_t offset,
                        std::span<const std::byte> piece) {
  Peer& peer = use(rank);
  const bool eager = header.kind == FrameKind::kEager;
  Posted* const posted = eager ? peer.eager_posted : find_posted(peer, key_of(header));
  if (posted == nullptr) return;
  const std::size_t begin = eager ? 0 : static_cast<std::size_t>(header.offset);
  posted->owner->message_piece(posted->slot, begin + offset, piece);
}

void Messenger::take_frame(Peer& peer, const FrameHeader& header) {
  Channel* const channel = heard_channel(peer, header.communicator);
  if (channel == nullptr || !channel->is_heard()) {
    if (header.kind == FrameKind::kEager) drop_eager(peer);
    if (channel == nullptr && !peer.closed) drop_closed(peer, header);
    return;
  }
  switch (header.kind) {
    case FrameKind::kEager:
      on_credit(peer, *channel, header.offset);
      return eager_received(peer, *channel, header);
    case FrameKind::kData:
      return data_received(peer, header);
    case FrameKind::kAnnounce:
      return on_announce(peer, *channel, header);
    case FrameKind::kGrant:
      return on_grant(peer, *channel, header);
    case FrameKind::kCredit:
      return on_credit(peer, *channel, header.total_bytes);
    case FrameKind::kProbe:
      return on_probe(peer, header);
    case FrameKind::kWant:
      return on_want(peer, *channel, header);
    case FrameKind::kAsk:
      return on_ask(peer, *channel, header);
    case FrameKind::kOffer:
      return on_offer(peer, header);
    case FrameKind::kLeft:
      return on_left(peer, *channel, header);
    case FrameKind::kTransport:
      break;
  }
  violate(peer, *channel, "sent a frame of an unknown kind");
}

// Only what place() has taken counts: a frame that was refused there completes nothing.
void Messenger::eager_received(Peer& peer, Channel& channel, const FrameHeader& header) {
  if (Posted* const posted = std::exchange(peer.eager_posted, nullptr)) {
    return_credit(peer, channel, credit_cost(header.payload_bytes));
    return complete(peer, posted);
  }
  Arrival* const arrival = std::exchange(peer.eager_arrival, nullptr);
  if (arrival == nullptr) return;
  arrival->complete = true;
  if (Posted* const claimed = arrival->claimed) {
    MessageOwner* const owner = claimed->owner;
    const std::uint32_t slot = claimed->slot;
    consume(peer, arrival, claimed);
    owner->message_done(slot);
  } else if (is_spent(peer, channel)) {
    name_awaited(peer, channel);
  }
}

// Its channel was closed or broken meanwhile; until now its memory was being written to.
void Messenger::drop_eager(Peer& peer) {
  peer.eager_posted = nullptr;
  Arrival* const arrival = std::exchange(peer.eager_arrival, nullptr);
  if (arrival == nullptr) return;
  // Stays until the communicator's failure ends it.
  if (arrival->claimed != nullptr) peer.posted.push_back(arrival->claimed);
  erase_arrival(peer, arrival);
}

// Each piece is placed once, or its channel is broken: so every one that comes here counts.
void Messenger::data_received(Peer& peer, const FrameHeader& header) {
  Posted* const posted = find_posted(peer, key_of(header));
  if (posted == nullptr) return;  // cancelled meanwhile
  posted->remaining -= header.payload_bytes;
  if (posted->remaining == 0) complete(peer, posted);
}

// A peer that speaks in a communicator closed here is told so, once as long as that is known.
void Messenger::drop_closed(Peer& peer, const FrameHeader& header) {
  if (header.kind == FrameKind::kLeft || header.kind == FrameKind::kCredit) return;
  if (const auto known = closed_.find(header.communicator); known != closed_.end()) {
    std::vector<bool>& told = known->second;
    if (told[static_cast<std::size_t>(peer.rank)]) return;
    told[static_cast<std::size_t>(peer.rank)] = true;
  } else if (!peer.backlog.empty()) {
    return;  // of one that is forgotten, so that answers do not pile up
  }
  post_control(peer, FrameKind::kLeft, {header.communicator, FrameClass::kCollective, 0, 0}, {}, 0);
}

// What it sent before may still be on its way on a stream where it has not said so yet.
void Messenger::on_left(Peer& peer, Channel& channel, const FrameHeader& header) {
  if (++channel.said_left < header.index) return;
  if (std::exchange(channel.left, true) || channel.calls->early >= 0) return;
  events_.left(channel.communicator, peer.rank);
}

void Messenger::on_announce(Peer& peer, Channel& channel, const FrameHeader& header) {
  const bool wanted = header.offset == kAnswer;
  const bool was_full = channel.asked_for.size() >= kWantsMax;
  if (wanted && std::erase(channel.asked_for, header.index) == 0) {
    return violate(peer, channel, "announced a message that nobody had waited for");
  }
  const std::size_t cost = wanted ? 0 : kAnnounceCost;
  if (!take_credit(peer, channel, cost)) {
    return violate(peer, channel, "announced more messages than it had credit for");
  }
  Posted* posted = header.frame_class == FrameClass::kPointToPoint
                       ? match_tagged(peer, header)
                       : find_posted(peer, key_of(header));
  if (posted != nullptr) {
    if (!fits(peer, *posted, header)) return;
    grant(peer, posted, posted->granted ? kAnswer : 0);
    return_credit(peer, channel, cost);
  } else if (check_record(peer.rank, key_of(header), header.record)) {
    new_arrival(peer, header, cost);
  }
  if (!is_spent(peer, channel)) return;
  if (!wanted || was_full) return name_awaited(peer, channel);
  want_next(peer, channel, header.index);
}

// The peer did not keep the grant of a message that it has come to.
void Messenger::on_ask(Peer& peer, Channel& channel, const FrameHeader& header) {
  Posted* const posted = find_posted(peer, key_of(header));
  if (posted == nullptr || !posted->granted) return;  // it will be granted when it is posted
  if (std::exchange(posted->granted_again, true)) {
    return violate(peer, channel, "asked twice for the grant of a message");
  }
  grant(peer, posted, kAnswer);
}

void Messenger::on_offer(Peer& peer, const FrameHeader& header) {
  const Posted* const posted = find_posted(peer, key_of(header));
  if (posted != nullptr) static_cast<void>(fits(peer, *posted, header));
}

void Messenger::on_probe(Peer& peer, const FrameHeader& header) {
  // A peer that waits for a message asks so whether this rank is still there.
  if (header.sequence == kPointToPointSequence) return;
  Calls* known = calls_heard_of(peer, header.communicator);
  if (known == nullptr || !check_record(peer.rank, key_of(header), header.record)) return;
  offer_waiting(peer, header.communicator, header.sequence);
  for (auto& probe : known->probes) {
    if (probe.peer != peer.rank) continue;
    probe.call = {header.sequence, header.record};
    return;
  }
  known->probes.push_back({peer.rank, {header.sequence, header.record}});
}

void Messenger::compare_call(std::uint32_t communicator, std::uint64_t sequence,
                             const CallRecord& record) {
  for (const auto& probe : calls(communicator).probes) {
    if (probe.call.sequence == sequence && !(probe.call.record == record)) {
      events_.mismatch(communicator, probe.peer, probe.call.record, record);
      return;
    }
  }
  for (Peer* peer : active_) {
    for (const auto& arrival : peer->arrivals) {
      if (arrival->key.communicator == communicator && arrival->key.sequence == sequence &&
          arrival->key.frame_class == FrameClass::kCollective && !(arrival->record == record)) {
        events_.mismatch(communicator, peer->rank, arrival->record, record);
        return;
      }
    }
  }
}

}  // namespace unisono
