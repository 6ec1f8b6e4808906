// What a peer may send unasked, by the receiver's account, and what is asked for when it has spent
// that.
#include <algorithm>
#include <utility>

#include "engine/messenger_state.h"

namespace unisono {

bool Messenger::has_credit(const Peer& peer, const Channel& channel, std::size_t cost) const {
  return channel.held + channel.to_return + cost <= peer.traits.eager_credit_bytes;
}

// False: the peer had not so much left.
bool Messenger::take_credit(const Peer& peer, Channel& channel, std::size_t cost) const {
  if (!has_credit(peer, channel, cost)) return false;
  channel.held += cost;
  return true;
}

// In batches, but never so late that what the peer may still use runs dry.
void Messenger::return_credit(Peer& peer, Channel& channel, std::size_t cost) {
  if (cost == 0) return;
  channel.held -= cost;
  channel.to_return += cost;
  const std::size_t in_use = peer.traits.eager_credit_bytes - channel.held;
  if (channel.to_return < std::min(peer.traits.eager_credit_bytes / 4, in_use / 2)) return;
  const std::size_t amount = std::exchange(channel.to_return, 0);
  post_control(peer, FrameKind::kCredit, {channel.communicator, FrameClass::kCollective, 0, 0}, {},
               amount);
}

// What an eager message takes along, so that it need not be told in a frame of its own: where both
// send, there are none of these. Little waits for more, since tiny messages go without an offset.
std::size_t Messenger::take_due_credit(const Peer& peer, Channel& channel) const {
  if (channel.to_return < peer.traits.eager_credit_bytes / 16) return 0;
  return std::exchange(channel.to_return, 0);
}

// The peer has no credit left, not even to announce: everything it had credit for has arrived, and
// it sends nothing more there until it is granted, wanted or given credit.
bool Messenger::is_spent(const Peer& peer, const Channel& channel) const {
  return !has_credit(peer, channel, kAnnounceCost);
}

// Tells a peer whose credit has just run out what this rank waits for.
void Messenger::name_awaited(Peer& peer, Channel& channel) {
  for (Posted* posted : peer.posted) {
    if (posted->key.communicator != channel.communicator || posted->granted) continue;
    if (posted != peer.eager_posted) grant(peer, posted);
  }
  for (Posted* posted : channel.calls->tagged) {
    if (posted->peer == kAnyRank || posted->peer == peer.rank)
      want(peer, channel, posted->key.index);
  }
}

void Messenger::want(Peer& peer, Channel& channel, Tag tag) {
  if (channel.asked_for.size() >= kWantsMax) return;
  const auto asked = std::find(channel.asked_for.begin(), channel.asked_for.end(), tag);
  if (asked != channel.asked_for.end()) return;
  channel.asked_for.push_back(tag);
  post_control(peer, FrameKind::kWant, {channel.communicator, FrameClass::kPointToPoint, tag, 0},
               {}, 0);
}

// One message of a tag is wanted at a time.
void Messenger::want_next(Peer& peer, Channel& channel, Tag tag) {
  for (Posted* posted : channel.calls->tagged) {
    if (posted->key.index != tag) continue;
    if (posted->peer == kAnyRank || posted->peer == peer.rank) return want(peer, channel, tag);
  }
}

}  // namespace unisono
