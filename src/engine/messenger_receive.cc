// The receiving half of the messenger: matching what arrives with what is posted.
#include <algorithm>

#include "base/direct_memory.h"
#include "engine/messenger_state.h"

namespace unisono {
namespace {

constexpr std::size_t kArrivalsMax = 1 << 16;  // per peer; credit bounds the bytes

}  // namespace

Messenger::Posted* Messenger::acquire_posted() {
  if (free_posted_.empty()) {
    posted_pool_.push_back(std::make_unique<Posted>());
    free_posted_.reserve(posted_pool_.size());
    free_posted_.push_back(posted_pool_.back().get());
  }
  Posted* posted = free_posted_.back();
  free_posted_.pop_back();
  *posted = Posted{};
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
  if (bytes > (eager_bytes_ != 0 ? eager_bytes_ : peer.traits.eager_bytes_max)) grant(peer, posted);
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
  return false;
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
  if (!posted->tagged && !fits(peer.rank, *posted, header)) {
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
  return_credit(peer, arrival->key.communicator, credit_cost(arrival->bytes));
  erase_arrival(peer, arrival);
  free_posted_.push_back(posted);
}

void Messenger::grant(Peer& peer, Posted* posted) {
  post_control(peer, FrameKind::kGrant, posted->key, posted->record, posted->bytes);
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

Messenger::Arrival* Messenger::new_arrival(Peer& peer, const FrameHeader& header) {
  if (peer.arrivals.size() >= kArrivalsMax) {
    events_.violation(header.communicator, peer.rank, "more unexpected messages than are allowed");
    return nullptr;
  }
  std::unique_ptr<Arrival> arrival;
  if (peer.free_arrivals.empty()) {
    arrival = std::make_unique<Arrival>();
  } else {
    arrival = std::move(peer.free_arrivals.back());
    peer.free_arrivals.pop_back();
  }
  arrival->key = key_of(header);
  arrival->record = header.record;
  arrival->bytes = static_cast<std::size_t>(header.total_bytes);
  arrival->announced = header.kind == FrameKind::kAnnounce;
  arrival->complete = false;
  arrival->claimed = nullptr;
  peer.arrivals.push_back(std::move(arrival));
  return peer.arrivals.back().get();
}

void Messenger::erase_arrival(Peer& peer, Arrival* arrival) {
  const auto found = std::find_if(
      peer.arrivals.begin(), peer.arrivals.end(),
      [&](const std::unique_ptr<Arrival>& candidate) { return candidate.get() == arrival; });
  UNISONO_ASSERT(found != peer.arrivals.end(), "an arrival was erased twice");
  peer.free_arrivals.push_back(std::move(*found));
  peer.arrivals.erase(found);
}

// A collective message whose size or record differs from what was posted.
bool Messenger::fits(Rank peer, const Posted& posted, const FrameHeader& header) {
  if (header.frame_class == FrameClass::kPointToPoint) return header.total_bytes == posted.bytes;
  if (!(header.record == posted.record)) {
    events_.mismatch(header.communicator, peer, header.record, posted.record);
    return false;
  }
  if (header.total_bytes != posted.bytes) {
    events_.violation(header.communicator, peer,
                      "sent " + std::to_string(header.total_bytes) + " bytes where " +
                          std::to_string(posted.bytes) +
                          " were expected: the ranks' counts of this pair differ");
    return false;
  }
  return true;
}

bool Messenger::check_record(Rank peer, const MessageKey& key, const CallRecord& theirs) {
  if (key.frame_class != FrameClass::kCollective) return true;
  Calls* const known = known_calls(key.communicator);
  if (known == nullptr) return true;
  const auto& recent = known->recent;
  const Calls::Entry& entry = recent[key.sequence % recent.size()];
  if (entry.sequence != key.sequence || entry.record == theirs) return true;
  events_.mismatch(key.communicator, peer, theirs, entry.record);
  return false;
}

Placement Messenger::place(Rank rank, const FrameHeader& header) {
  Peer& peer = use(rank);
  if (calls_heard_of(peer, header.communicator) == nullptr) return {};
  switch (header.kind) {
    case FrameKind::kEager:
      return place_eager(peer, header);
    case FrameKind::kData:
      return place_data(peer, header);
    default:
      return {};
  }
}

Placement Messenger::place_eager(Peer& peer, const FrameHeader& header) {
  if (header.payload_bytes != header.total_bytes) {
    events_.violation(header.communicator, peer.rank, "an eager frame of another length");
    return {};
  }
  Lane& credit = lane(peer, header.communicator);
  if (credit.held + credit_cost(header.payload_bytes) > peer.traits.eager_credit_bytes) {
    events_.violation(header.communicator, peer.rank, "more eager bytes than it had credit for");
    return {};
  }
  credit.held += credit_cost(header.payload_bytes);
  Posted* posted = header.frame_class == FrameClass::kPointToPoint
                       ? match_tagged(peer, header)
                       : find_posted(peer, key_of(header));
  if (posted != nullptr) {
    if (!fits(peer.rank, *posted, header) || posted->discard) return {};
    if (posted->target != nullptr) return {Placement::Kind::kInto, posted->target};
    return {Placement::Kind::kDeliver, nullptr};
  }
  if (!check_record(peer.rank, key_of(header), header.record)) return {};
  Arrival* arrival = new_arrival(peer, header);
  if (arrival == nullptr) return {};
  if (arrival->buffer.size() < arrival->bytes) arrival->buffer.resize(arrival->bytes);
  return {Placement::Kind::kInto, arrival->buffer.data()};
}

Placement Messenger::place_data(Peer& peer, const FrameHeader& header) {
  Posted* posted = find_posted(peer, key_of(header));
  if (posted == nullptr) return {};  // cancelled here; the communicator has failed
  if (header.offset > posted->bytes || header.payload_bytes > posted->bytes - header.offset ||
      header.payload_bytes > posted->remaining || header.offset % 64 != 0 ||
      header.total_bytes != posted->bytes) {
    events_.violation(header.communicator, peer.rank, "data beyond the end of their message");
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
  Posted* posted = find_posted(use(rank), key_of(header));
  if (posted == nullptr) return;
  posted->owner->message_piece(posted->slot, static_cast<std::size_t>(header.offset) + offset,
                               piece);
}

void Messenger::received(Rank rank, const FrameHeader& header) {
  Peer& peer = use(rank);
  if (calls_heard_of(peer, header.communicator) == nullptr) return drop_closed(peer, header);
  switch (header.kind) {
    case FrameKind::kEager: {
      if (Posted* posted = find_posted(peer, key_of(header))) {
        if (header.total_bytes == posted->bytes && header.record == posted->record) {
          return_credit(peer, header.communicator, credit_cost(header.payload_bytes));
          complete(peer, posted);
        }
        return;
      }
      for (auto& arrival : peer.arrivals) {
        if (!(arrival->key == key_of(header)) || arrival->announced) continue;
        arrival->complete = true;
        if (Posted* claimed = arrival->claimed) {
          MessageOwner* const owner = claimed->owner;
          const std::uint32_t slot = claimed->slot;
          consume(peer, arrival.get(), claimed);
          owner->message_done(slot);
        }
        return;
      }
      return;
    }
    case FrameKind::kData:
      if (Posted* posted = find_posted(peer, key_of(header))) {
        if (header.payload_bytes > posted->remaining) return;  // reported by place()
        posted->remaining -= header.payload_bytes;
        if (posted->remaining == 0) complete(peer, posted);
      }
      return;
    case FrameKind::kAnnounce:
      on_announce(peer, header);
      return;
    case FrameKind::kGrant:
      on_grant(peer, header);
      return;
    case FrameKind::kCredit: {
      Lane& credit = lane(peer, header.communicator);
      credit.credit =
          std::min<std::size_t>(credit.credit + header.total_bytes, peer.traits.eager_credit_bytes);
      return;
    }
    case FrameKind::kProbe:
      on_probe(peer, header);
      return;
    case FrameKind::kLeft:
      events_.left(header.communicator, rank);
      return;
    case FrameKind::kTransport:
      break;
  }
  events_.violation(header.communicator, rank, "a frame of an unknown kind");
}

// A peer that speaks in a communicator closed here is told so.
void Messenger::drop_closed(Peer& peer, const FrameHeader& header) {
  // One that was in part when the communicator was closed had to keep its memory until now.
  std::erase_if(peer.arrivals, [&](const std::unique_ptr<Arrival>& arrival) {
    return arrival->key == key_of(header);
  });
  if (header.kind == FrameKind::kLeft || header.kind == FrameKind::kCredit) return;
  post_control(peer, FrameKind::kLeft, {header.communicator, FrameClass::kCollective, 0, 0}, {}, 0);
}

void Messenger::on_announce(Peer& peer, const FrameHeader& header) {
  Posted* posted = header.frame_class == FrameClass::kPointToPoint
                       ? match_tagged(peer, header)
                       : find_posted(peer, key_of(header));
  if (posted != nullptr) {
    if (fits(peer.rank, *posted, header)) grant(peer, posted);
    return;
  }
  if (check_record(peer.rank, key_of(header), header.record)) new_arrival(peer, header);
}

void Messenger::on_probe(Peer& peer, const FrameHeader& header) {
  Calls* known = calls_heard_of(peer, header.communicator);
  if (known == nullptr || !check_record(peer.rank, key_of(header), header.record)) return;
  for (auto& probe : known->probes) {
    if (probe.peer != peer.rank) continue;
    probe.call = {header.sequence, header.record};
    return;
  }
  known->probes.push_back({peer.rank, {header.sequence, header.record}});
}

void Messenger::note_call(std::uint32_t communicator, std::uint64_t sequence,
                          const CallRecord& record) {
  Calls& known = calls(communicator);
  known.recent[sequence % known.recent.size()] = {sequence, record};
  for (const auto& probe : known.probes) {
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

void Messenger::return_credit(Peer& peer, std::uint32_t communicator, std::size_t cost) {
  Lane& credit = lane(peer, communicator);
  credit.held -= std::min(cost, credit.held);
  credit.to_return += cost;
  if (credit.to_return < peer.traits.eager_credit_bytes / 4) return;
  const std::size_t amount = credit.to_return;
  credit.to_return = 0;
  post_control(peer, FrameKind::kCredit, {communicator, FrameClass::kCollective, 0, 0}, {}, amount);
}

}  // namespace unisono
