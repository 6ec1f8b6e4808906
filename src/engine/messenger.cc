// The messenger's set-up, polling and cancelling. Sending and receiving have files of their own.
#include "engine/messenger.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/communicator_id.h"
#include "engine/messenger_state.h"

namespace unisono {
namespace {

// An eager message is one frame and must leave credit for others.
constexpr std::size_t kEagerBytesMax = kFramePayloadMax / 4;
// Communicators that one peer may speak in before this rank does. Making one is a collective call:
// a peer is ahead by one, and by as many as its threads make at once.
constexpr std::size_t kEarlyCommunicatorsMax = 256;
// Closed communicators of which it is known whom they were told to.
constexpr std::size_t kClosedMax = 1 << 16;

}  // namespace

Messenger::Messenger(int world_size, MessengerEvents& events, std::size_t eager_bytes)
    : events_(events),
      eager_bytes_(std::min(eager_bytes, kEagerBytesMax)),
      peers_(static_cast<std::size_t>(world_size)),
      routes_(static_cast<std::size_t>(world_size), nullptr),
      forgotten_below_(std::bit_ceil(static_cast<std::size_t>(world_size) + 1), 0) {}

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
    auto made = std::make_unique<Peer>();
    made->rank = rank;
    made->transport = transport;
    made->endpoint = &transport->endpoint(rank);
    made->traits = transport->traits_to(rank);
    made->closed = is_deaf_;
    active_.push_back(made.get());
    peer = std::move(made);
  }
  return *peer;
}

Messenger::Channel& Messenger::channel(Peer& peer, std::uint32_t communicator) {
  if (Channel* known = find_channel(peer, communicator)) return *known;
  return add_channel(peer, communicator, calls(communicator));
}

Messenger::Channel* Messenger::find_channel(Peer& peer, std::uint32_t communicator) {
  if (peer.last_channel != nullptr && peer.last_channel->communicator == communicator) {
    return peer.last_channel;
  }
  for (auto& candidate : peer.channels) {
    if (candidate->communicator == communicator) return peer.last_channel = candidate.get();
  }
  return nullptr;
}

// Where a frame that has arrived belongs. Null: the communicator is closed here, or the peer is
// given up.
Messenger::Channel* Messenger::heard_channel(Peer& peer, std::uint32_t communicator) {
  if (peer.closed) return nullptr;
  if (Channel* known = find_channel(peer, communicator)) return known;
  Calls* const heard = calls_heard_of(peer, communicator);
  return heard == nullptr ? nullptr : &add_channel(peer, communicator, *heard);
}

Messenger::Channel& Messenger::add_channel(Peer& peer, std::uint32_t communicator, Calls& calls) {
  auto made = std::make_unique<Channel>();
  made->communicator = communicator;
  made->calls = &calls;
  made->credit = peer.traits.eager_credit_bytes;
  made->admitted = calls.admits(peer.rank);
  if (!made->admitted) events_.stranger(communicator, peer.rank);
  peer.channels.push_back(std::move(made));
  return *(peer.last_channel = peer.channels.back().get());
}

// The peer is not believed any more in this communicator, which fails, now or when it is made here.
void Messenger::violate(Peer& peer, Channel& channel, std::string what) {
  channel.broken = true;
  if (channel.calls->early >= 0) {
    channel.violation = std::move(what);
  } else {
    events_.violation(channel.communicator, peer.rank, std::move(what));
  }
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
    known = &add_calls(communicator, -1);
  } else if (known->early >= 0) {
    --use(known->early).early_communicators;
    known->early = -1;
  }
  return *known;
}

Messenger::Calls* Messenger::calls_heard_of(Peer& peer, std::uint32_t communicator) {
  if (Calls* known = known_calls(communicator)) return known;
  if (is_closed(communicator)) return nullptr;
  if (peer.early_communicators >= kEarlyCommunicatorsMax) {
    closed(peer.rank, Status(ErrorCode::kProtocol,
                             "rank " + std::to_string(peer.rank) + " spoke in more than " +
                                 std::to_string(kEarlyCommunicatorsMax) +
                                 " communicators that are unknown here",
                             peer.rank));
    return nullptr;
  }
  Calls& made = add_calls(communicator, peer.rank);
  ++peer.early_communicators;
  return &made;
}

// All of it or, where memory is used up, nothing.
Messenger::Calls& Messenger::add_calls(std::uint32_t communicator, Rank early) {
  auto made = std::make_unique<Calls>();
  made->early = early;
  made->members.resize(peers_.size());
  return *(calls_[communicator] = std::move(made));
}

std::size_t Messenger::giver_index(std::uint32_t communicator) const {
  return static_cast<std::size_t>(giver_of(communicator, static_cast<int>(peers_.size())));
}

void Messenger::remember_closed(std::uint32_t communicator) {
  if (!closed_.try_emplace(communicator, peers_.size()).second) return;
  closed_in_order_.push_back(communicator);
  if (closed_in_order_.size() <= kClosedMax) return;
  const std::uint32_t oldest = closed_in_order_.front();
  closed_.erase(oldest);
  closed_in_order_.pop_front();
  std::uint32_t& below = forgotten_below_[giver_index(oldest)];
  below = std::max(below, oldest + 1);
}

// No id is given twice, and each giver counts upwards: what is older than a forgotten one has been
// closed here, too, unless it is known.
bool Messenger::is_closed(std::uint32_t communicator) const {
  return closed_.contains(communicator) ||
         communicator < forgotten_below_[giver_index(communicator)];
}

void Messenger::open(std::uint32_t communicator, std::span<const Rank> members) {
  Calls& known = calls(communicator);
  for (const Rank rank : members) known.members[static_cast<std::size_t>(rank)] = true;
  std::erase_if(known.probes, [&](const Calls::Probe& probe) { return !known.admits(probe.peer); });
  for (Peer* peer : active_) {
    Channel* const channel = find_channel(*peer, communicator);
    if (channel == nullptr) continue;
    channel->admitted = known.admits(peer->rank);
    if (!channel->admitted) {
      forget(*peer, communicator);
      events_.stranger(communicator, peer->rank);
      continue;
    }
    if (channel->lost_frames) {
      events_.no_memory(communicator);
    } else if (channel->broken) {
      events_.violation(communicator, peer->rank, std::move(channel->violation));
    }
    if (channel->left) events_.left(communicator, peer->rank);
  }
}

void Messenger::close(std::uint32_t communicator) {
  calls(communicator);  // no longer an early one
  remember_closed(communicator);
  for (Peer* peer : active_) {
    Channel* const channel = find_channel(*peer, communicator);
    if (channel == nullptr) continue;
    if (channel->admitted) {
      closed_[communicator][static_cast<std::size_t>(peer->rank)] = true;
      post_control(*peer, FrameKind::kLeft, {communicator, FrameClass::kCollective, 0, 0}, {}, 0);
    }
    forget(*peer, communicator);
    peer->last_channel = nullptr;
    std::erase_if(peer->channels, [&](const auto& each) { return each.get() == channel; });
  }
  calls_.erase(communicator);
  last_calls_ = nullptr;
}

// What the peer has sent in this communicator. Memory that is being written to stays until then,
// where nobody finds it.
void Messenger::forget(Peer& peer, std::uint32_t communicator) {
  if (peer.eager_arrival != nullptr && peer.eager_arrival->key.communicator == communicator) {
    peer.eager_arrival->key.frame_class = FrameClass{};
  }
  std::erase_if(peer.arrivals, [&](const std::unique_ptr<Arrival>& arrival) {
    return arrival->key.communicator == communicator && arrival.get() != peer.eager_arrival;
  });
  std::erase_if(peer.early_grants,
                [&](const FrameHeader& grant) { return grant.communicator == communicator; });
}

void Messenger::cancel(const MessageOwner& owner) {
  for (Peer* peer : active_) {
    peer->drop_receives(owner, &free_posted_);
    peer->unclaim_arrivals(owner, &free_posted_);
  }
  for (auto& [communicator, known] : calls_) known->drop_tagged(owner, &free_posted_);
  for (Peer* peer : active_) unsent_ -= peer->drop_sends(owner, &free_outgoing_);
}

// How many of the list were the owner's.
template <typename List>
std::size_t Messenger::Peer::drop(List& list, const MessageOwner& owner,
                                  std::vector<Outgoing*>* freed) const {
  std::size_t dropped = 0;
  for (auto it = list.begin(); it != list.end();) {
    Outgoing* const message = *it;
    if (message->owner != &owner) {
      ++it;
      continue;
    }
    if (message->in_flight > 0) endpoint->cancel(reinterpret_cast<std::uint64_t>(message));
    freed->push_back(message);
    it = list.erase(it);
    ++dropped;
  }
  return dropped;
}

std::size_t Messenger::Peer::drop_sends(const MessageOwner& owner, std::vector<Outgoing*>* freed) {
  const std::size_t unsent = drop(backlog, owner, freed) + drop(streaming, owner, freed);
  drop(waiting, owner, freed);
  drop(lent, owner, freed);
  for (auto& channel : channels) drop(channel->held_back, owner, freed);
  return unsent;
}

void Messenger::Peer::drop_receives(const MessageOwner& owner, std::vector<Posted*>* freed) {
  if (eager_posted != nullptr && eager_posted->owner == &owner) eager_posted = nullptr;
  std::erase_if(posted, [&](Posted* each) {
    if (each->owner != &owner) return false;
    // What is longer than its room was never written to it.
    if (each->target != nullptr && !each->discard) endpoint->abandon(each->target, each->bytes);
    freed->push_back(each);
    return true;
  });
}

void Messenger::Peer::unclaim_arrivals(const MessageOwner& owner, std::vector<Posted*>* freed) {
  for (auto& arrival : arrivals) {
    if (arrival->claimed == nullptr || arrival->claimed->owner != &owner) continue;
    freed->push_back(arrival->claimed);
    arrival->claimed = nullptr;
  }
}

void Messenger::Calls::drop_tagged(const MessageOwner& owner, std::vector<Posted*>* freed) {
  std::erase_if(tagged, [&](Posted* each) {
    if (each->owner != &owner) return false;
    freed->push_back(each);
    return true;
  });
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

void Messenger::give_up(Rank dead) {
  for (Transport* transport : transports_) transport->give_up(dead, *this);
}

void Messenger::closed(Rank rank, const Status& cause) {
  try {
    use(rank).closed = true;
    events_.link_closed(rank, cause);
  } catch (const std::bad_alloc&) {
    events_.no_memory(kEveryCommunicator);
  }
}

}  // namespace unisono
