// A rank's side of its control connection over the simulated network: the production's session, and
// the attempts to come to a standby that standby_dial makes with sockets.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/control_session.h"

namespace unisono::sim {

/// What a client asks of the network.
struct ControlNetwork {
  /// To the arbiter that `standby` may hold; -1: nobody listens there.
  std::function<int(Rank standby, rendezvous::RejoinMessage greeting)> dial;
  std::function<void(int connection, std::string)> send;
  std::function<void(int connection)> close;
};

class ControlClient final : private rendezvous::ControlLinks {
 public:
  /// `members` outlive it.
  ControlClient(const std::vector<Member>& members, Rank self, int connection,
                std::chrono::milliseconds silence, ControlNetwork network, TimePoint now);
  ControlClient(const ControlClient&) = delete;

  /// For what the rank says, and for news.
  rendezvous::ControlSession& session() { return session_; }
  void leave();

  void on_message(int connection, std::string_view bytes, TimePoint now);
  void on_closed(int connection, TimePoint now);
  void on_wake(TimePoint now);
  TimePoint next_due() const;

 private:
  struct Dial {
    Rank standby;
    TimePoint due;
    rendezvous::RejoinMessage greeting;
    int connection = -1;  // none: it was turned away, and comes again
    TimePoint again{};
    rendezvous::DialOutcome outcome = rendezvous::DialOutcome::kPending;
  };

  // ControlLinks
  void send(std::string bytes) override { network_.send(connection_, std::move(bytes)); }
  void close() override { network_.close(connection_); }
  void dial(Rank standby, const rendezvous::RejoinMessage& greeting, TimePoint now) override;
  void give_up() override;
  void move() override;

  void connect();
  void come_again(TimePoint now);
  /// Tells the session how its attempts have ended.
  void settle_dial(TimePoint now);

  const Rank self_;
  int connection_;  // to the arbiter
  const ControlNetwork network_;
  std::optional<Dial> dial_;
  rendezvous::ControlSession session_;
};

}  // namespace unisono::sim
