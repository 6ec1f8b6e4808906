// Messages over frames: matching, eager credit, grants. One per rank, shared by all communicators.
//
// A message is named by (peer, communicator, class, sequence, index). Small ones travel eagerly and
// spend credit of (communicator, channel); larger ones, or those without credit, wait for the
// receiver's grant and then stream straight into place. In a collective both sides know every
// message, so a posted receive above the eager size sends its grant at once; a point-to-point
// message is announced first. Announcements spend credit too: a channel that has none left holds
// its messages back, and the receiver, which knows when that is so, names those it waits for
// (README.md).
//
// Nothing that comes from a peer is trusted: who is no member of a communicator is not heard there,
// and after a violation nothing more of that peer counts there.
//
// Thread rule: the engine's lock. Owners are called back from poll() only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "transports/transport.h"

namespace unisono {

/// What a message belongs to; compared whole. `index` is the message index or the tag.
struct MessageKey {
  std::uint32_t communicator = 0;
  FrameClass frame_class = FrameClass::kCollective;
  std::uint32_t index = 0;
  std::uint64_t sequence = 0;
  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

/// Who posted a message; told when it is done. Called from poll(), or from receive() before it
/// returns true; must not call the messenger.
class MessageOwner {
 public:
  virtual ~MessageOwner() = default;
  virtual void message_done(std::uint32_t slot) = 0;
  /// Receives posted with a null target: the bytes, from wherever they lie. Offsets are multiples
  /// of 64.
  virtual void message_piece(std::uint32_t slot, std::size_t offset,
                             std::span<const std::byte> piece) = 0;
};

/// What the messenger tells its engine. Only to be noted there: no call back into the messenger.
class MessengerEvents {
 public:
  virtual ~MessengerEvents() = default;
  /// `peer` is in another call than this rank.
  virtual void mismatch(std::uint32_t communicator, Rank peer, const CallRecord& theirs,
                        const CallRecord& ours) = 0;
  /// `peer` and this rank are in the same call but expect messages of different lengths.
  virtual void counts_differ(std::uint32_t communicator, Rank peer, std::string what) = 0;
  /// `peer` broke the protocol of this communicator.
  virtual void violation(std::uint32_t communicator, Rank peer, std::string what) = 0;
  virtual void link_closed(Rank peer, const Status& cause) = 0;
  /// `peer` has closed this communicator; all it sent before has been handed over.
  virtual void left(std::uint32_t communicator, Rank peer) = 0;
  /// The record of this rank's call of this number; null while there is none yet, and when it is no
  /// longer known.
  virtual const CallRecord* find_call(std::uint32_t communicator, std::uint64_t sequence) const = 0;
  /// `peer` has spoken in this communicator and is no member of it. Nothing of it is heard there;
  /// told once.
  virtual void stranger(std::uint32_t communicator, Rank peer) = 0;
  /// This rank had no memory for what came in this communicator (kEveryCommunicator: in any), and
  /// it is lost. Does not throw.
  virtual void no_memory(std::uint32_t communicator) = 0;
};

/// What a tagged receive got; written before message_done.
struct TaggedResult {
  Rank peer = -1;
  Tag tag = 0;
  std::size_t bytes = 0;  ///< of the message, even where it did not fit
};

class Messenger final : public FrameSink {
 public:
  /// `eager_bytes`: 0 takes each transport's own. `events` outlives the messenger.
  Messenger(int world_size, MessengerEvents& events, std::size_t eager_bytes);
  ~Messenger() override;

  /// Which transport reaches `peer`; it outlives the messenger. Before the first message.
  void set_route(Rank peer, Transport& transport);
  Transport& route(Rank peer) const;

  /// Comes before this rank's first message in the communicator. `members` are world ranks: frames
  /// of anybody else are ignored there. What members have sent before has waited, bounded by
  /// credit, and events about it may be told now.
  void open(std::uint32_t communicator, std::span<const Rank> members);
  /// Tells every peer that was in touch, and drops this communicator's frames from now on.
  void close(std::uint32_t communicator);

  /// True when already done (no message_done follows). The payload is lent until then.
  bool send(Rank peer, const MessageKey& key, const CallRecord& record,
            std::span<const std::byte> payload, MessageOwner& owner, std::uint32_t slot);
  /// `target` null: pieces go to the owner. True when already done.
  bool receive(Rank peer, const MessageKey& key, const CallRecord& record, std::byte* target,
               std::size_t bytes, MessageOwner& owner, std::uint32_t slot);
  /// The oldest message of `peer` (or kAnyRank) with key.index as its tag; `bytes` is the room. A
  /// longer message is dropped; `result` tells. True when already done.
  bool receive_tagged(Rank peer, const MessageKey& key, std::byte* target, std::size_t bytes,
                      TaggedResult* result, MessageOwner& owner, std::uint32_t slot);
  /// Looks so many times whether the message of such a receive, as long as its room, is the next
  /// that comes of `peer`, and takes it past everything that poll() does. False: it has to be
  /// posted.
  bool take_awaited(Rank peer, const MessageKey& key, std::span<std::byte> room, int looks);
  /// Forgets every message of `owner`: none of its buffers is referenced afterwards.
  void cancel(const MessageOwner& owner);

  /// Tells a peer that this rank waits in `record`, so that a peer that is in another call, or
  /// expects other counts, notices.
  void probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
             const CallRecord& record);
  /// Compares the call that this rank enters with what peers have said about (communicator,
  /// sequence).
  void compare_call(std::uint32_t communicator, std::uint64_t sequence, const CallRecord& record);

  /// Advances all transports in use. True when anything moved.
  bool poll();
  /// True while something only waits for poll() to send it.
  bool has_unsent() const;
  /// As Transport::give_up(), of all transports.
  void give_up(Rank dead);
  /// False when poll() has nothing to look at.
  bool in_use() const { return !transports_.empty(); }

  // FrameSink
  Placement place(Rank peer, const FrameHeader& header) override;
  void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
               std::span<const std::byte> piece) override;
  void received(Rank peer, const FrameHeader& header) override;
  void sent(Rank peer, std::uint64_t token) override;
  void closed(Rank peer, const Status& cause) override;

 private:
  struct Outgoing;
  class Backlog;
  struct Posted;
  struct Arrival;
  struct Channel;
  struct Peer;
  struct Calls;

  Peer& use(Rank peer);
  Channel& channel(Peer& peer, std::uint32_t communicator);
  Channel* find_channel(Peer& peer, std::uint32_t communicator);
  Channel* heard_channel(Peer& peer, std::uint32_t communicator);
  Channel& add_channel(Peer& peer, std::uint32_t communicator, Calls& calls);
  Calls& calls(std::uint32_t communicator);
  Calls* calls_heard_of(Peer& peer, std::uint32_t communicator);
  Calls& add_calls(std::uint32_t communicator, Rank early);
  Calls* known_calls(std::uint32_t communicator);
  void remember_closed(std::uint32_t communicator);
  bool is_closed(std::uint32_t communicator) const;
  std::size_t giver_index(std::uint32_t communicator) const;
  void forget(Peer& peer, std::uint32_t communicator);
  void violate(Peer& peer, Channel& channel, std::string what);
  Placement place_frame(Peer& peer, const FrameHeader& header);
  void take_frame(Peer& peer, const FrameHeader& header);
  void lose(Rank peer, const FrameHeader& header);
  void lose_known(Peer& peer, const FrameHeader& header);

  // Sending (messenger_send.cc)
  Outgoing* acquire_outgoing(Peer& peer);
  void release(Outgoing* message);
  bool submit(Peer& peer, Outgoing* message);
  PostResult post(Peer& peer, Outgoing* message);
  bool stream(Peer& peer, Outgoing* message);
  void pump(Peer& peer);
  void finish_if_sent(Outgoing* message);
  void post_control(Peer& peer, FrameKind kind, const MessageKey& key, const CallRecord& record,
                    std::uint64_t total_bytes, std::uint64_t offset = 0);
  bool is_small(const Peer& peer, std::size_t bytes) const;
  bool goes_eagerly(const Peer& peer, const Outgoing& message) const;
  bool spend(const Peer& peer, Channel& channel, Outgoing* message) const;
  void hold_back(Peer& peer, Channel& channel, Outgoing* message);
  void announce_wanted(Peer& peer, Outgoing* message);
  void send_held_back(Peer& peer, Channel& channel);
  void on_grant(Peer& peer, Channel& channel, const FrameHeader& header);
  void offer_waiting(Peer& peer, std::uint32_t communicator, std::uint64_t sequence);
  void keep_early_grant(Peer& peer, Channel& channel, const FrameHeader& header);
  void on_credit(Peer& peer, Channel& channel, std::uint64_t bytes);
  void on_want(Peer& peer, Channel& channel, const FrameHeader& header);

  // Receiving (messenger_receive.cc)
  Posted* acquire_posted();
  bool take_arrival(Peer& peer, Arrival* arrival, Posted* posted);
  void consume(Peer& peer, Arrival* arrival, Posted* posted);
  void grant(Peer& peer, Posted* posted, std::uint64_t offset = 0);
  void complete(Peer& peer, Posted* posted);
  Posted* find_posted(Peer& peer, const MessageKey& key);
  Posted* match_tagged(Peer& peer, const FrameHeader& header);
  Arrival* find_arrival(Peer& peer, const MessageKey& key);
  Arrival* new_arrival(Peer& peer, const FrameHeader& header, std::size_t cost);
  void keep_arrival(Peer& peer, std::unique_ptr<Arrival> arrival);
  void erase_arrival(Peer& peer, Arrival* arrival);
  Placement place_eager(Peer& peer, Channel& channel, const FrameHeader& header);
  Placement place_data(Peer& peer, Channel& channel, const FrameHeader& header);
  void eager_received(Peer& peer, Channel& channel, const FrameHeader& header);
  void data_received(Peer& peer, const FrameHeader& header);
  void drop_eager(Peer& peer);
  void on_announce(Peer& peer, Channel& channel, const FrameHeader& header);
  void on_ask(Peer& peer, Channel& channel, const FrameHeader& header);
  void on_offer(Peer& peer, const FrameHeader& header);
  void on_probe(Peer& peer, const FrameHeader& header);
  void on_left(Peer& peer, Channel& channel, const FrameHeader& header);
  void drop_closed(Peer& peer, const FrameHeader& header);
  bool check_record(Rank peer, const MessageKey& key, const CallRecord& theirs);
  bool fits(Peer& peer, const Posted& posted, const FrameHeader& header);

  // Credit (messenger_credit.cc)
  bool has_credit(const Peer& peer, const Channel& channel, std::size_t cost) const;
  bool take_credit(const Peer& peer, Channel& channel, std::size_t cost) const;
  void return_credit(Peer& peer, Channel& channel, std::size_t cost);
  std::size_t take_due_credit(const Peer& peer, Channel& channel) const;
  bool is_spent(const Peer& peer, const Channel& channel) const;
  void name_awaited(Peer& peer, Channel& channel);
  void want(Peer& peer, Channel& channel, Tag tag);
  void want_next(Peer& peer, Channel& channel, Tag tag);

  MessengerEvents& events_;
  std::size_t eager_bytes_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Transport*> routes_;
  std::vector<Transport*> transports_;  // in use
  std::vector<Peer*> active_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Calls>> calls_;  // not of closed ones
  std::uint32_t last_communicator_ = 0;  // whose calls were looked up last
  Calls* last_calls_ = nullptr;
  std::unordered_map<std::uint32_t, std::vector<bool>> closed_;  // and which ranks know that
  std::deque<std::uint32_t> closed_in_order_;
  std::vector<std::uint32_t> forgotten_below_;  // by giver of the id
  std::vector<std::unique_ptr<Outgoing>> outgoing_pool_;
  std::vector<std::unique_ptr<Posted>> posted_pool_;
  std::vector<Outgoing*> free_outgoing_;
  std::vector<Posted*> free_posted_;
  std::size_t unsent_ = 0;
  bool is_deaf_ = false;  // frames were lost, and nobody knows of which communicators
};

}  // namespace unisono
