// The messenger's set-up, polling and cancelling. Sending and receiving have files of their own.
#include "engine/messenger.h"

#include <algorithm>

#include "engine/messenger_state.h"

namespace unisono {
namespace {

// An eager message is one frame and must leave credit for others.
constexpr std::size_t kEagerBytesMax = kFramePayloadMax / 4;
// Communicators that peers may speak in before this rank does.
constexpr std::size_t kEarlyCommunicatorsMax = 4096;
// Closed communicators whose late frames are recognised.
constexpr std::size_t kClosedMax = 1 << 16;

}  // namespace

Messenger::Messenger(int world_size, MessengerEvents& events, std::size_t eager_bytes)
    : events_(events),
      eager_bytes_(std::min(eager_bytes, kEagerBytesMax)),
      peers_(static_cast<std::size_t>(world_size)),
      routes_(static_cast<std::size_t>(world_size), nullptr) {}

Messenger::~Messenger() = default;

void Messenger::set_route(Rank peer, Transport& transport) {
  routes_[static_cast<std::size_t>(peer)] = &transport;
  // A transport is polled from the start: a peer may speak first.
  if (std::find(transports_.begin(), transports_.end(), &transport) == transports_.end()) {
    transports_.push_back(&transport);
  }
}

Transport& Messenger::route(Rank peer) const {
  UNISONO_ASSERT(routes_[static_cast<std::size_t>(peer)] != nullptr, "a rank without a route");
  return *routes_[static_cast<std::size_t>(peer)];
}

Messenger::Peer& Messenger::use(Rank rank) {
  auto& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer == nullptr) {
    Transport* transport = routes_[static_cast<std::size_t>(rank)];
    UNISONO_ASSERT(transport != nullptr, "a message for a rank without a route");
    peer = std::make_unique<Peer>();
    peer->rank = rank;
    peer->transport = transport;
    peer->endpoint = &transport->endpoint(rank);
    peer->traits = transport->traits_to(rank);
    active_.push_back(peer.get());
  }
  return *peer;
}

Messenger::Lane& Messenger::lane(Peer& peer, std::uint32_t communicator) {
  for (Lane& candidate : peer.lanes) {
    if (candidate.communicator == communicator) return candidate;
  }
  peer.lanes.push_back({communicator, peer.traits.eager_credit_bytes, 0, 0});
  return peer.lanes.back();
}

// Null: neither this rank nor a peer has called there yet, or it is closed.
Messenger::Calls* Messenger::known_calls(std::uint32_t communicator) {
  if (last_calls_ != nullptr && last_communicator_ == communicator) return last_calls_;
  const auto found = calls_.find(communicator);
  if (found == calls_.end()) return nullptr;
  last_communicator_ = communicator;
  last_calls_ = found->second.get();
  return last_calls_;
}

Messenger::Calls& Messenger::calls(std::uint32_t communicator) {
  Calls* known = known_calls(communicator);
  if (known == nullptr) {
    known = (calls_[communicator] = std::make_unique<Calls>()).get();
  } else if (known->early) {
    --early_;
  }
  known->early = false;
  return *known;
}

Messenger::Calls* Messenger::calls_heard_of(const Peer& peer, std::uint32_t communicator) {
  if (Calls* known = known_calls(communicator)) return known;
  if (closed_.contains(communicator)) return nullptr;
  if (early_ >= kEarlyCommunicatorsMax) {
    events_.violation(communicator, peer.rank, "spoke in too many communicators unknown here");
    return nullptr;
  }
  ++early_;
  auto& entry = calls_[communicator];
  entry = std::make_unique<Calls>();
  entry->early = true;
  return entry.get();
}

void Messenger::remember_closed(std::uint32_t communicator) {
  if (!closed_.insert(communicator).second) return;
  closed_in_order_.push_back(communicator);
  if (closed_in_order_.size() <= kClosedMax) return;
  closed_.erase(closed_in_order_.front());
  closed_in_order_.pop_front();
}

void Messenger::close(std::uint32_t communicator) {
  calls(communicator);  // no longer an early one
  calls_.erase(communicator);
  last_calls_ = nullptr;
  remember_closed(communicator);
  for (Peer* peer : active_) {
    const bool in_touch =
        std::any_of(peer->lanes.begin(), peer->lanes.end(),
                    [&](const Lane& lane) { return lane.communicator == communicator; });
    if (in_touch) {
      post_control(*peer, FrameKind::kLeft, {communicator, FrameClass::kCollective, 0, 0}, {}, 0);
    }
    std::erase_if(peer->arrivals, [&](const std::unique_ptr<Arrival>& arrival) {
      return arrival->key.communicator == communicator && (arrival->announced || arrival->complete);
    });
    std::erase_if(peer->lanes, [&](const Lane& lane) { return lane.communicator == communicator; });
    std::erase_if(peer->early_grants,
                  [&](const FrameHeader& grant) { return grant.communicator == communicator; });
  }
}

void Messenger::cancel(const MessageOwner& owner) {
  const auto is_mine = [&](const Outgoing* message) { return message->owner == &owner; };
  for (Peer* peer : active_) {
    const auto drop = [&](auto& list, bool unsent) {
      for (auto it = list.begin(); it != list.end();) {
        if (!is_mine(*it)) {
          ++it;
          continue;
        }
        if ((*it)->in_flight > 0) {
          peer->endpoint->cancel(reinterpret_cast<std::uint64_t>(*it));
        }
        release(*it);
        it = list.erase(it);
        if (unsent) --unsent_;
      }
    };
    drop(peer->backlog, true);
    drop(peer->streaming, true);
    drop(peer->waiting, false);
    drop(peer->lent, false);
    for (auto it = peer->posted.begin(); it != peer->posted.end();) {
      Posted* posted = *it;
      if (posted->owner != &owner) {
        ++it;
        continue;
      }
      // What is longer than its room was never written to it.
      if (posted->target != nullptr && !posted->discard) {
        peer->endpoint->abandon(posted->target, posted->bytes);
      }
      free_posted_.push_back(posted);
      it = peer->posted.erase(it);
    }
    for (auto& arrival : peer->arrivals) {
      if (arrival->claimed == nullptr || arrival->claimed->owner != &owner) continue;
      free_posted_.push_back(arrival->claimed);
      arrival->claimed = nullptr;
    }
  }
  for (auto& [communicator, known] : calls_) {
    std::erase_if(known->tagged, [&](Posted* posted) {
      if (posted->owner != &owner) return false;
      free_posted_.push_back(posted);
      return true;
    });
  }
}

bool Messenger::poll() {
  bool moved = false;
  for (Transport* transport : transports_) moved = transport->poll(*this) || moved;
  if (unsent_ > 0) {
    const std::size_t before = unsent_;
    for (Peer* peer : active_) pump(*peer);
    moved = moved || unsent_ != before;
  }
  return moved;
}

bool Messenger::has_unsent() const {
  return unsent_ > 0 || std::any_of(transports_.begin(), transports_.end(),
                                    [](const Transport* each) { return each->has_unsent(); });
}

void Messenger::closed(Rank rank, const Status& cause) {
  use(rank).closed = true;
  events_.link_closed(rank, cause);
}

}  // namespace unisono
