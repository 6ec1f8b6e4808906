// The control connections of a simulated job: every rank's client, the arbiter of rank 0 and those
// of standbys, and messages between them, in order on each connection and late.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/client/arbiter_client.h"
#include "rendezvous/sessions/serving_arbiter.h"
#include "tests/sim/case.h"
#include "tests/sim/control_client.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"

namespace unisono::sim {

/// What a message takes at most where nothing is down or stopped.
inline constexpr Duration kControlDelay = std::chrono::milliseconds(5);

class ControlPlane final : private rendezvous::ArbiterLinks {
 public:
  struct Options {
    int ranks = 2;
    std::chrono::milliseconds silence{0};
    std::uint64_t seed = 1;
    std::function<void(Rank)> wake;  ///< a client has news
    /// When the processes of this rank run next: now, later, or kNever.
    std::function<TimePoint(Rank)> runs_at;
    /// As Fabric's.
    std::function<TimePoint(Rank, Rank)> passes_at;
    std::function<int(Rank)> host_of = [](Rank rank) { return rank / kRanksOfHost; };
  };
  ControlPlane(Options options, Schedule& schedule);

  /// Over client(), as a rank uses it.
  ArbiterClient& arbiter_client(Rank rank) { return *seat(rank).arbiter_client; }
  ControlClient& client(Rank rank) { return *seat(rank).client; }
  const std::vector<Rank>& standbys() const { return standbys_; }
  /// After every use of a client: it may have to be woken earlier now.
  void settle(Rank rank) { arm(rank); }
  void end_process(Rank rank);
  /// Both ends of its connections to other hosts hear that the other one has closed them. False:
  /// there are none.
  bool reset(Rank rank);
  /// The rank has left. An arbiter that serves others goes on.
  void on_left(Rank rank);
  /// The process of a rank that has left ends, and its arbiter with it.
  void end_after_leaving(Rank rank);

 private:
  /// One direction of a connection.
  struct Way {
    TimePoint last{};  // when the latest arrives
    struct Waiting {
      std::function<void()> what;
      bool is_sent_again;  // since it was lost before
    };
    std::deque<Waiting> waiting{};
  };
  struct Connection {
    Rank rank, holder;
    bool is_open_at_rank = true, is_open_at_holder = true;
    Way up{}, down{};
  };
  struct Seat {
    std::unique_ptr<ArbiterClient> arbiter_client;
    ControlClient* client = nullptr;
    std::unique_ptr<rendezvous::ServingArbiter> arbiter;
    TimePoint client_due = kNever, arbiter_due = kNever;
    bool is_dead = false;
    bool listens = false;
  };

  // ArbiterLinks, of all arbiters
  void send(int connection, std::shared_ptr<const std::string> bytes) override {
    down(connection, *bytes);
  }
  void close(int connection) override { close_at_holder(connection); }
  bool is_behind(int) const override { return false; }
  void on_taken_over() override {}

  Seat& seat(Rank rank) { return seats_[static_cast<std::size_t>(rank)]; }
  int connect(Rank rank, Rank holder);
  /// As ControlNetwork::dial.
  int dial(Rank rank, Rank standby, rendezvous::RejoinMessage greeting);
  rendezvous::ServingArbiter& arbiter(Rank holder);
  void rejoin(int connection, Rank standby, const std::string& greeting);
  /// In the process of `to`, behind what was sent there on this connection before; never where
  /// `from` cannot reach it any more.
  void later(Way* way, Rank from, Rank to, std::function<void()> what);
  void arrive(Way* way, Rank from, Rank to, TimePoint when);
  void up(int connection, std::string bytes);
  void down(int connection, std::string bytes);
  void close_at_rank(int connection);
  void close_at_holder(int connection);
  void tell_holder_of_end(int connection);
  void tell_rank_of_end(int connection);
  void when_run(TimePoint when, Rank at, std::function<void()> what);
  void arm(Rank rank);
  rendezvous::ProcessSight sight_of(Rank rank);
  /// A question, and its answer: lost where a message would be late.
  void probe(Rank from, Rank to, const rendezvous::ProbeNonce& nonce);

  const Options options_;
  Schedule& schedule_;
  Random random_;
  std::vector<Member> members_;
  std::vector<Rank> standbys_;

  std::vector<Seat> seats_;
  std::deque<Connection> connections_;  // whose places stay
  int dials_ = 0;
};

}  // namespace unisono::sim
