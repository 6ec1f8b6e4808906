// Ranks with the verbs transport over a fake network, all in one thread and polled in turn: the
// device thread apart, what happens is in the test's hands. Each rank has a witness (the
// conformance suite's recorder) and the buffers it lent. Used by the test's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/log_guard.h"
#include "tests/transport/recorder.h"
#include "tests/verbs/fake_fabric.h"
#include "tests/verbs/scripted_cm.h"
#include "transports/verbs/verbs_transport_state.h"

namespace unisono::verbs::test {

using unisono::test::LogGuard;
using unisono::test::Recorder;

/// Bytes that are read by the receiver, in several pieces.
inline constexpr std::size_t kLarge = 200 * 1000;

/// The TCP transport that a rank of these worlds has beside its ports.
Result<std::unique_ptr<Transport>> make_side_transport(Rank rank, int size);

struct WorldShape {
  int ranks = 2;
  int ports = 1;
  VerbsOptions options;       ///< rank and size are filled in
  FakeFabricOptions network;  ///< hosts are filled in where there are none
  std::vector<Rank> plain;    ///< these have the TCP transport alone
  std::vector<Rank> askers;   ///< these ask for paths by rdma_cm
  /// The test itself is these, and is reached so.
  std::map<Rank, std::string> strangers;
};

class World {
 public:
  explicit World(WorldShape shape = {});
  /// Nothing may be left on any host.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Addresses are exchanged; false: the test has failed. Made of its own by the constructor unless
  /// a rank could not be made.
  bool stands() const { return stands_; }

  int size() const { return static_cast<int>(ranks_.size()); }
  FakeFabric& network() { return *network_; }
  Transport& transport(Rank rank) { return *at(rank).transport; }
  /// What all others know of each other.
  const std::vector<std::string>& addresses() const { return addresses_; }
  /// Called in each turn.
  std::function<void()> stranger;
  /// Not of a plain rank.
  VerbsTransport& verbs(Rank rank) { return *at(rank).verbs; }
  /// Of a rank that asks.
  ScriptedCm& cm(Rank rank) { return *at(rank).cm; }
  Recorder& witness(Rank rank) { return at(rank).witness; }

  struct Message {
    std::size_t bytes = 0;
    FrameKind kind = FrameKind::kEager;
  };
  PostResult try_send(Rank from, Rank to, const Message& message);
  /// Polls everyone until it is taken; false: the test has failed, or the link ended.
  bool send(Rank from, Rank to, const Message& message);
  /// One of each way that a frame may take, in both directions between ranks 0 and 1.
  void send_a_round(int round);
  /// Frames of `from` to `to` so far.
  std::uint64_t sent(Rank from, Rank to) const;
  /// Cancels what is lent, spoils it at once; how many.
  std::uint64_t cancel_all(Rank from, Rank to);
  /// Cancels one of those that are lent; false: none is.
  bool cancel_one(Rank from, Rank to);

  /// One poll of everyone who is not paused.
  void turn();
  void turns(int count);
  void poll(Rank rank);
  void pause(Rank rank, bool paused = true) { at(rank).paused = paused; }
  bool pump_until(const std::function<bool()>& done, const char* what);
  /// Everyone has everything that was sent to it, and all buffers are back.
  bool settle();
  bool has_settled(Rank from, Rank to);
  bool settle(Rank from, Rank to);
  /// One frame each way between all.
  bool greet();

  /// The cause given to `rank`'s engine; fails the test where the link does not end.
  Status end_of(Rank rank, Rank peer);
  bool has_ended(Rank rank, Rank peer) { return witness(rank).closed_cause(peer).has_value(); }

  /// Closes all ranks at once, each on a thread of its own.
  void close_all();
  /// As a rank that is killed: no goodbye.
  void kill(Rank rank);

 private:
  struct Lent {
    Rank peer;
    std::vector<std::byte> buffer;
  };
  struct Member {
    std::unique_ptr<Transport> transport;
    VerbsTransport* verbs = nullptr;
    std::shared_ptr<ScriptedCm> cm;
    Recorder witness;
    std::map<std::uint64_t, Lent> lent;
    std::map<Rank, std::uint64_t> next_sequence;
    std::uint64_t next_token = 1;
    bool paused = false;
  };
  Member& at(Rank rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  const Member& at(Rank rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  bool make(Rank rank, const WorldShape& shape);
  bool introduce(const WorldShape& shape);
  /// What came of what was sent, for a test that has failed.
  std::string describe();
  void free_returned(Member& member);
  std::map<std::uint64_t, Lent>::iterator cancel(Member& member,
                                                 std::map<std::uint64_t, Lent>::iterator lent);

  std::unique_ptr<FakeFabric> network_;
  std::vector<std::unique_ptr<Member>> ranks_;
  std::vector<std::string> addresses_;
  bool stands_ = false;
};

/// Whether a line above was logged that has all these words.
bool has_line(const LogGuard& guard, const std::vector<std::string>& words);

}  // namespace unisono::verbs::test
