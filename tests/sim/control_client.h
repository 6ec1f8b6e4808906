// A rank's side of its control connection over the simulated network: the production's session and
// attempts to come to a standby.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/failure/prober.h"
#include "rendezvous/sessions/control_session.h"
#include "rendezvous/sessions/standby_attempt.h"
#include "tests/sim/schedule.h"

namespace unisono::sim {

/// What a client asks of the network.
struct ControlNetwork {
  /// To the arbiter that `standby` may hold; -1: nobody listens there; kNoWay: not now.
  std::function<int(Rank standby, rendezvous::RejoinMessage greeting)> dial;
  static constexpr int kNoWay = -2;
  std::function<void(int connection, std::string)> send;
  std::function<void(int connection)> close;
  /// What can be seen of the process of a rank on the same host.
  std::function<rendezvous::ProcessSight(Rank)> sight_of;
  /// A datagram to that rank, which ControlClient::on_probe_answer() may hear of.
  std::function<void(Rank to, const rendezvous::ProbeNonce&)> probe;
};

class ControlClient final : public rendezvous::ArbiterConnection, private rendezvous::ControlLinks {
 public:
  /// `members` outlive it.
  ControlClient(const std::vector<Member>& members, Rank self, int connection,
                std::chrono::milliseconds silence, ControlNetwork network,
                const Schedule& schedule);
  ControlClient(const ControlClient&) = delete;

  // ArbiterConnection
  bool has_news() const override { return session_.has_news(); }
  rendezvous::ArbiterNews take_news() override { return session_.take_news(); }
  void catch_up() override {}
  bool is_lost() const override { return session_.is_lost(); }
  bool is_last() const override { return session_.is_last(); }
  std::chrono::milliseconds silence() const override { return session_.silence(); }
  Status partition() const override { return session_.partition(); }
  void report(std::string bytes) override { session_.report(std::move(bytes)); }
  void report_lasting(std::string bytes) override;
  void report_broken_link(Rank peer, const Status& cause) override;
  void report_waiting(const rendezvous::WaitMessage& wait) override {
    session_.report_waiting(wait);
  }
  void report_timeout(const rendezvous::WaitMessage& wait) override;
  void withdraw_timeout(const rendezvous::WaitMessage& wait) override {
    session_.withdraw_timeout(wait);
  }
  void say_shrink(const rendezvous::ShrinkMessage& message) override {
    session_.say_shrink(message);
  }
  void leave() override;

  /// It looks for who holds the arbiter.
  bool is_seeking() const { return session_.is_seeking(); }
  bool has_left() const { return session_.has_left(); }
  TimePoint arbiter_heard_at() const { return session_.arbiter_heard_at(); }

  void on_message(int connection, std::string_view bytes);
  void on_closed(int connection);
  void on_probe_answer(Rank from, const rendezvous::ProbeNonce& nonce);
  void on_wake();
  TimePoint next_due() const;

 private:
  /// An attempt to come to a standby, and its connection.
  class Dial final : public rendezvous::StandbyLine {
   public:
    Dial(const ControlNetwork& network, Rank standby, Rank self, std::size_t places,
         rendezvous::RejoinMessage greeting, TimePoint now)
        : attempt(standby, self, places, now),
          network_(network),
          last_place_(places - 1),
          greeting_(std::move(greeting)) {}
    rendezvous::DialOutcome open(std::size_t place) override;
    rendezvous::DialOutcome converse() override { return heard; }
    void close() override { network_.close(std::exchange(connection, -1)); }

    rendezvous::StandbyAttempt attempt;
    int connection = -1;
    rendezvous::DialOutcome heard{};  // on it

   private:
    const ControlNetwork& network_;
    const std::size_t last_place_;
    const rendezvous::RejoinMessage greeting_;
  };

  // ControlLinks
  void send(std::string bytes) override { network_.send(connection_, std::move(bytes)); }
  void close() override { network_.close(connection_); }
  void dial(Rank standby, const rendezvous::RejoinMessage& greeting, TimePoint now) override;
  void give_up() override;
  rendezvous::ProcessSight sight_of(Rank rank) const override { return network_.sight_of(rank); }
  void probe(Rank rank, TimePoint now) override;
  void move() override;

  void close_if_left();
  void serve_probes();
  /// Goes on with attempts, and tells the session how they have ended.
  void advance_dial();
  TimePoint now() const { return schedule_.now(); }

  const Rank self_;
  int connection_;  // to the arbiter
  const ControlNetwork network_;
  const Schedule& schedule_;
  std::optional<Dial> dial_;
  TimePoint gone_at_ = kNever;   // or tells the standbys
  bool tells_standbys_ = false;  // that it has left
  rendezvous::Prober prober_;
  std::uint8_t probes_ = 0;  // so many it has begun
  rendezvous::ControlSession session_;
};

}  // namespace unisono::sim
