// The sending half of the messenger: eager, announced and granted messages, and control frames.
#include <algorithm>

#include "engine/messenger_state.h"

namespace unisono {
namespace {

constexpr std::size_t kEarlyGrantsMax = 1 << 16;

FrameHeader make_header(FrameKind kind, const MessageKey& key, const CallRecord& record,
                        std::uint64_t total_bytes) {
  FrameHeader header;
  header.kind = kind;
  header.frame_class = key.frame_class;
  header.communicator = key.communicator;
  header.index = key.index;
  header.sequence = key.sequence;
  header.total_bytes = total_bytes;
  header.record = record;
  return header;
}

}  // namespace

Messenger::Outgoing* Messenger::acquire_outgoing(Peer& peer) {
  if (free_outgoing_.empty()) {
    outgoing_pool_.push_back(std::make_unique<Outgoing>());
    free_outgoing_.reserve(outgoing_pool_.size());
    free_outgoing_.push_back(outgoing_pool_.back().get());
  }
  Outgoing* message = free_outgoing_.back();
  free_outgoing_.pop_back();
  *message = Outgoing{};
  message->peer = &peer;
  return message;
}

void Messenger::release(Outgoing* message) { free_outgoing_.push_back(message); }

bool Messenger::send(Rank rank, const MessageKey& key, const CallRecord& record,
                     std::span<const std::byte> payload, MessageOwner& owner, std::uint32_t slot) {
  Peer& peer = use(rank);
  Outgoing* message = acquire_outgoing(peer);
  message->payload = payload;
  message->owner = &owner;
  message->slot = slot;
  message->header = make_header(FrameKind::kEager, key, record, payload.size());
  if (peer.closed) {
    // Nobody will take it: the operation waits until its communicator's failure ends it.
    message->state = Outgoing::State::kWaiting;
    peer.waiting.push_back(message);
    return false;
  }

  const auto granted = std::find_if(peer.early_grants.begin(), peer.early_grants.end(),
                                    [&](const FrameHeader& grant) { return key_of(grant) == key; });
  if (granted != peer.early_grants.end()) {
    const FrameHeader grant = *granted;
    peer.early_grants.erase(granted);
    peer.waiting.push_back(message);
    on_grant(peer, grant);
    return false;
  }

  Lane& credit = lane(peer, key.communicator);
  const bool small =
      payload.size() <= (eager_bytes_ != 0 ? eager_bytes_ : peer.traits.eager_bytes_max);
  if (small && credit.credit >= credit_cost(payload.size())) {
    credit.credit -= credit_cost(payload.size());
    message->state = Outgoing::State::kEager;
    message->header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    return submit(peer, message);
  }
  if (small || key.frame_class == FrameClass::kPointToPoint) {
    message->state = Outgoing::State::kAnnounce;
    message->header.kind = FrameKind::kAnnounce;
    submit(peer, message);
    return false;
  }
  message->state = Outgoing::State::kWaiting;  // the receiver grants when it posts
  peer.waiting.push_back(message);
  return false;
}

// Posts a frame in lane order, now or behind the backlog. True when the message is done.
bool Messenger::submit(Peer& peer, Outgoing* message) {
  if (!peer.backlog.empty() || post(peer, message) == PostResult::kFull) {
    peer.backlog.push_back(message);
    ++unsent_;
    return false;
  }
  return message->owner == nullptr;
}

// Hands one ordered frame to the transport and moves the message to where it waits next. A message
// that is done has no owner afterwards and is released.
PostResult Messenger::post(Peer& peer, Outgoing* message) {
  const bool eager = message->state == Outgoing::State::kEager;
  const PostResult result = peer.endpoint->post_send(
      message->header, eager ? message->payload : std::span<const std::byte>{},
      reinterpret_cast<std::uint64_t>(message));
  if (result == PostResult::kFull) return result;
  if (message->state == Outgoing::State::kAnnounce) {
    message->state = Outgoing::State::kWaiting;
    peer.waiting.push_back(message);
    if (result == PostResult::kPending) ++message->in_flight;
    return result;
  }
  if (result == PostResult::kPending) {
    ++message->in_flight;
    peer.lent.push_back(message);
  } else {
    message->owner = nullptr;
    release(message);
  }
  return result;
}

// Hands as many pieces of a granted message to the transport as it takes. True when all are posted.
bool Messenger::stream(Peer& peer, Outgoing* message) {
  FrameHeader header = message->header;
  header.kind = FrameKind::kData;
  // An empty message still is one frame.
  while (message->posted_bytes < message->payload.size() || !message->begun) {
    const std::size_t bytes =
        std::min(kFramePayloadMax, message->payload.size() - message->posted_bytes);
    header.offset = message->posted_bytes;
    header.payload_bytes = static_cast<std::uint32_t>(bytes);
    const PostResult result =
        peer.endpoint->post_send(header, message->payload.subspan(message->posted_bytes, bytes),
                                 reinterpret_cast<std::uint64_t>(message));
    if (result == PostResult::kFull) return false;
    if (result == PostResult::kPending) ++message->in_flight;
    message->posted_bytes += bytes;
    message->begun = true;
  }
  return true;
}

void Messenger::pump(Peer& peer) {
  while (!peer.backlog.empty()) {
    Outgoing* message = peer.backlog.front();
    MessageOwner* const owner = message->owner;
    const std::uint32_t slot = message->slot;
    if (post(peer, message) == PostResult::kFull) return;
    peer.backlog.pop_front();
    --unsent_;
    if (owner != nullptr && message->owner == nullptr) owner->message_done(slot);
  }
  for (std::size_t i = 0; i < peer.streaming.size();) {
    Outgoing* message = peer.streaming[i];
    if (!stream(peer, message)) return;
    peer.streaming.erase(peer.streaming.begin() + static_cast<std::ptrdiff_t>(i));
    --unsent_;
    peer.lent.push_back(message);
    finish_if_sent(message);
  }
}

void Messenger::finish_if_sent(Outgoing* message) {
  if (message->in_flight > 0) return;
  Peer& peer = *message->peer;
  const auto found = std::find(peer.lent.begin(), peer.lent.end(), message);
  if (found == peer.lent.end()) return;  // still announced, waiting or streaming
  peer.lent.erase(found);
  MessageOwner* const owner = message->owner;
  const std::uint32_t slot = message->slot;
  message->owner = nullptr;
  release(message);
  if (owner != nullptr) owner->message_done(slot);
}

void Messenger::sent(Rank, std::uint64_t token) {
  Outgoing* message = reinterpret_cast<Outgoing*>(token);
  UNISONO_ASSERT(message->in_flight > 0, "a transport completed a frame twice");
  --message->in_flight;
  finish_if_sent(message);
}

void Messenger::post_control(Peer& peer, FrameKind kind, const MessageKey& key,
                             const CallRecord& record, std::uint64_t total_bytes) {
  if (peer.closed) return;
  Outgoing* message = acquire_outgoing(peer);
  message->state = Outgoing::State::kControl;
  message->header = make_header(kind, key, record, total_bytes);
  submit(peer, message);
}

void Messenger::probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
                      const CallRecord& record) {
  post_control(use(peer), FrameKind::kProbe, {communicator, FrameClass::kCollective, 0, sequence},
               record, 0);
}

void Messenger::on_grant(Peer& peer, const FrameHeader& header) {
  const MessageKey key = key_of(header);
  const auto found =
      std::find_if(peer.waiting.begin(), peer.waiting.end(),
                   [&](const Outgoing* message) { return key_of(message->header) == key; });
  if (found == peer.waiting.end()) {
    if (peer.early_grants.size() >= kEarlyGrantsMax) {
      events_.violation(key.communicator, peer.rank, "more grants than messages");
      return;
    }
    if (check_record(peer.rank, key, header.record)) peer.early_grants.push_back(header);
    return;
  }
  Outgoing* message = *found;
  if (key.frame_class == FrameClass::kCollective && !(message->header.record == header.record)) {
    events_.mismatch(key.communicator, peer.rank, header.record, message->header.record);
    return;
  }
  if (message->header.total_bytes != header.total_bytes) {
    events_.violation(key.communicator, peer.rank,
                      "asked for " + std::to_string(header.total_bytes) +
                          " bytes of a message of " + std::to_string(message->header.total_bytes));
    return;
  }
  peer.waiting.erase(found);
  message->state = Outgoing::State::kStreaming;
  peer.streaming.push_back(message);
  ++unsent_;
}

}  // namespace unisono
