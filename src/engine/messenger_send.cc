// The sending half of the messenger: eager, announced and granted messages, and control frames.
#include <algorithm>

#include "base/make_room.h"
#include "engine/messenger_state.h"

namespace unisono {
namespace {

// Grants of one peer that are kept for messages not sent yet. A peer may have more receives posted;
// what is not kept is asked for again.
constexpr std::size_t kEarlyGrantsMax = 1 << 12;
// Pieces of one message that a poll posts: whoever polls looks at clocks and failures in between,
// also where an endpoint takes all, as that of a closed link does.
constexpr int kPiecesPerPoll = 64;

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

  Channel& to = channel(peer, key.communicator);
  const auto granted = std::find_if(peer.early_grants.begin(), peer.early_grants.end(),
                                    [&](const FrameHeader& grant) { return key_of(grant) == key; });
  if (granted != peer.early_grants.end()) {
    const FrameHeader grant = *granted;
    peer.early_grants.erase(granted);
    peer.waiting.push_back(message);
    on_grant(peer, to, grant);
    return false;
  }
  if (key.frame_class == FrameClass::kPointToPoint || is_small(peer, payload.size())) {
    if (spend(peer, to, message)) return submit(peer, message);
    hold_back(peer, to, message);
  } else {
    message->state = Outgoing::State::kWaiting;  // the receiver grants when it posts
    peer.waiting.push_back(message);
  }
  if (key.frame_class == FrameClass::kCollective && to.lost_grants) {
    post_control(peer, FrameKind::kAsk, key, record, payload.size());
  }
  return false;
}

bool Messenger::is_small(const Peer& peer, std::size_t bytes) const {
  return bytes <= (eager_bytes_ != 0 ? eager_bytes_ : peer.traits.eager_bytes_max);
}

bool Messenger::goes_eagerly(const Peer& peer, const Outgoing& message) const {
  if (is_small(peer, message.payload.size())) return true;
  return eager_bytes_ == 0 && message.header.frame_class == FrameClass::kPointToPoint &&
         peer.endpoint->sends_unasked(message.payload);
}

// Makes it an eager message or one that is announced, as the credit allows. False: there is none.
bool Messenger::spend(const Peer& peer, Channel& channel, Outgoing* message) const {
  const std::size_t bytes = message->payload.size();
  const bool eager = channel.credit >= credit_cost(bytes) && goes_eagerly(peer, *message);
  if (!eager && channel.credit < kAnnounceCost) return false;
  channel.credit -= eager ? credit_cost(bytes) : kAnnounceCost;
  message->state = eager ? Outgoing::State::kEager : Outgoing::State::kAnnounce;
  message->header.kind = eager ? FrameKind::kEager : FrameKind::kAnnounce;
  message->header.payload_bytes = eager ? static_cast<std::uint32_t>(bytes) : 0;
  if (eager) message->header.offset = take_due_credit(peer, channel);
  return true;
}

// Nothing overtakes what is held back: while something is, there is no credit for an announcement.
// What the receiver waits for is fetched from here by kGrant and kWant.
void Messenger::hold_back(Peer& peer, Channel& channel, Outgoing* message) {
  message->state = Outgoing::State::kWaiting;
  if (message->header.frame_class == FrameClass::kPointToPoint &&
      std::erase(channel.wanted, message->header.index) > 0) {
    announce_wanted(peer, message);
  } else {
    channel.held_back.push_back(message);
  }
}

void Messenger::announce_wanted(Peer& peer, Outgoing* message) {
  message->state = Outgoing::State::kAnnounce;
  message->header.kind = FrameKind::kAnnounce;
  message->header.offset = kAnswer;
  submit(peer, message);
}

void Messenger::send_held_back(Peer& peer, Channel& channel) {
  while (!channel.held_back.empty()) {
    Outgoing* message = channel.held_back.front();
    MessageOwner* const owner = message->owner;
    const std::uint32_t slot = message->slot;
    if (!spend(peer, channel, message)) return;
    channel.held_back.pop_front();
    if (submit(peer, message)) owner->message_done(slot);
  }
}

void Messenger::on_credit(Peer& peer, Channel& channel, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes > peer.traits.eager_credit_bytes - channel.credit) {
    return violate(peer, channel, "returned more credit than it had been sent for");
  }
  channel.credit += static_cast<std::size_t>(bytes);
  send_held_back(peer, channel);
}

void Messenger::on_want(Peer& peer, Channel& channel, const FrameHeader& header) {
  const Tag tag = header.index;
  const bool again =
      std::find(channel.wanted.begin(), channel.wanted.end(), tag) != channel.wanted.end();
  if (again || channel.wanted.size() >= kWantsMax) {
    return violate(peer, channel, "named more tags that it waits for than are allowed");
  }
  for (auto it = channel.held_back.begin(); it != channel.held_back.end(); ++it) {
    Outgoing* const message = *it;
    if (message->header.frame_class != FrameClass::kPointToPoint) continue;
    if (message->header.index != tag) continue;
    channel.held_back.erase(it);
    return announce_wanted(peer, message);
  }
  channel.wanted.push_back(tag);
}

// Posts a frame in channel order, now or behind the backlog. True when the message is done.
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
  // What the transport has taken is found in its list, though memory is used up.
  auto& next = message->state == Outgoing::State::kAnnounce ? peer.waiting : peer.lent;
  make_room(next);
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

// Hands pieces of a granted message to the transport as it takes them. True when all are posted.
bool Messenger::stream(Peer& peer, Outgoing* message) {
  FrameHeader header = message->header;
  header.kind = FrameKind::kData;
  // An empty message still is one frame.
  for (int pieces = 0; message->posted_bytes < message->payload.size() || !message->begun;
       ++pieces) {
    if (pieces == kPiecesPerPoll) return false;
    const std::span<const std::byte> rest = message->payload.subspan(message->posted_bytes);
    // What waits behind a long frame waits until its reader has read it.
    const bool is_alone = peer.backlog.empty() && peer.streaming.size() == 1;
    const std::size_t bytes = is_alone ? peer.endpoint->frame_bytes(header, rest)
                                       : std::min(rest.size(), kFramePayloadMax);
    header.offset = message->posted_bytes;
    header.payload_bytes = static_cast<std::uint32_t>(bytes);
    const PostResult result = peer.endpoint->post_send(header, rest.first(bytes),
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
    peer.lent.push_back(message);
    peer.streaming.erase(peer.streaming.begin() + static_cast<std::ptrdiff_t>(i));
    --unsent_;
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
                             const CallRecord& record, std::uint64_t total_bytes,
                             std::uint64_t offset) {
  if (peer.closed) return;
  Outgoing* message = acquire_outgoing(peer);
  message->state = Outgoing::State::kControl;
  message->header = make_header(kind, key, record, total_bytes);
  message->header.offset = offset;
  submit(peer, message);
}

void Messenger::probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
                      const CallRecord& record) {
  post_control(use(peer), FrameKind::kProbe, {communicator, FrameClass::kCollective, 0, sequence},
               record, 0);
  offer_waiting(use(peer), communicator, sequence);
}

// A receiver that expects an eager message, because its counts are smaller, would never grant.
void Messenger::offer_waiting(Peer& peer, std::uint32_t communicator, std::uint64_t sequence) {
  for (Outgoing* message : peer.waiting) {
    const FrameHeader& header = message->header;
    if (header.frame_class != FrameClass::kCollective || header.communicator != communicator ||
        header.sequence != sequence || message->offers == kOffersMax) {
      continue;
    }
    ++message->offers;
    post_control(peer, FrameKind::kOffer, key_of(header), header.record, header.total_bytes);
  }
}

void Messenger::on_grant(Peer& peer, Channel& channel, const FrameHeader& header) {
  const MessageKey key = key_of(header);
  const auto is_meant = [&](const Outgoing* message) { return key_of(message->header) == key; };
  const auto found = std::find_if(peer.waiting.begin(), peer.waiting.end(), is_meant);
  // A collective message needs no announcement.
  const bool may_be_held_back =
      found == peer.waiting.end() && key.frame_class == FrameClass::kCollective;
  const auto held = may_be_held_back
                        ? std::find_if(channel.held_back.begin(), channel.held_back.end(), is_meant)
                        : channel.held_back.end();
  if (found == peer.waiting.end() && held == channel.held_back.end()) {
    return keep_early_grant(peer, channel, header);
  }
  Outgoing* message = found != peer.waiting.end() ? *found : *held;
  if (key.frame_class == FrameClass::kCollective && !(message->header.record == header.record)) {
    events_.mismatch(key.communicator, peer.rank, header.record, message->header.record);
    return;
  }
  if (message->header.total_bytes != header.total_bytes) {
    return events_.counts_differ(key.communicator, peer.rank,
                                 "expected " + std::to_string(header.total_bytes) +
                                     " bytes where " + std::to_string(message->header.total_bytes) +
                                     " were sent");
  }
  if (found != peer.waiting.end()) {
    peer.waiting.erase(found);
  } else {
    channel.held_back.erase(held);
  }
  message->state = Outgoing::State::kStreaming;
  peer.streaming.push_back(message);
  ++unsent_;
}

// A grant whose message has not been sent yet.
void Messenger::keep_early_grant(Peer& peer, Channel& channel, const FrameHeader& header) {
  const MessageKey key = key_of(header);
  if (key.frame_class == FrameClass::kPointToPoint) {
    return violate(peer, channel, "asked for a message that had not been announced");
  }
  // It crossed the first one, which was kept after all.
  if (header.offset == kAnswer) return;
  if (peer.early_grants.size() >= kEarlyGrantsMax) {
    channel.lost_grants = true;
    return;
  }
  if (check_record(peer.rank, key, header.record)) peer.early_grants.push_back(header);
}

}  // namespace unisono
