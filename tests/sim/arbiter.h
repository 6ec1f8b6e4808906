// The arbiter of a simulated job: the production state machines that decide (FailureDecider,
// ShrinkAgreements, Silence, Succession), fed with what ranks say as it comes over the wire. Around
// them it does what rendezvous/arbiter_loop.cc and arbiter_succession.cc do once all have met,
// without sockets, threads and clocks. A standby's waits for ranks that have lost the arbiter.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/control_messages.h"
#include "rendezvous/failure_decider.h"
#include "rendezvous/shrink_agreements.h"
#include "rendezvous/silence.h"
#include "rendezvous/succession.h"

namespace unisono::sim {

class Arbiter {
 public:
  struct Options {
    std::vector<Member> members;
    Rank self = 0;  ///< whose process it is; any but 0 is a standby's
    std::chrono::milliseconds silence{0};
    std::function<void(int connection, std::string)> send;  ///< a whole message
    std::function<void(int connection)> close;
  };
  Arbiter(Options options, TimePoint now);

  /// The arbiter of the start has a connection of each rank.
  void seat(int connection, Rank rank, TimePoint now);
  /// A rank that has lost its arbiter comes.
  void on_rejoin(int connection, rendezvous::RejoinMessage told, TimePoint now);
  void on_message(int connection, std::string_view bytes, TimePoint now);
  void on_closed(int connection, TimePoint now);
  bool has_taken_over() const { return phase_ != Phase::kStandingBy; }
  /// The rank whose process it is left before it had taken over.
  void note_own_rank_left() { own_rank_left_ = true; }
  /// Its process ends, without a failure if its own rank has left.
  void stop(TimePoint now);
  /// Whenever something has happened, and by next_due().
  void on_wake(TimePoint now);
  TimePoint next_due() const;

 private:
  enum class Phase : std::uint8_t { kStandingBy, kServing, kDone };
  struct Said {
    Rank target;  // -1: all
    std::string bytes;
  };

  Status take(Rank from, rendezvous::MessageType type, std::string_view body, TimePoint now);
  void unseat(int connection, const Status& outcome, bool left, bool gave_up);
  void learn(rendezvous::RejoinMessage told);
  void take_over(TimePoint now);
  void welcome_back(int connection, Rank rank, TimePoint now);
  void look_after_succession(TimePoint now);
  void look_after_silence(TimePoint now);
  void judge_missing(const std::vector<Rank>& missing);
  std::set<Rank> not_here(const std::vector<Rank>& ranks) const;
  void end_minority();
  void judge_silent(const std::vector<Rank>& silent, TimePoint now);
  void tell_departure(Rank rank);
  void abdicate();
  void say_decisions(TimePoint now);
  void say(Rank target, const std::string& bytes);
  void close_all();
  std::optional<int> connection_of(Rank rank) const;

  const Options options_;
  const int size_;
  Phase phase_;
  bool own_rank_left_ = false;
  rendezvous::FailureDecider decider_;
  rendezvous::ShrinkAgreements shrinks_;
  rendezvous::Silence silence_;
  std::optional<rendezvous::Succession> succession_;  // a standby's
  std::optional<rendezvous::DeposedMessage> deposed_;
  std::map<int, Rank> seats_;  // by connection
  std::vector<rendezvous::RejoinMessage> rejoined_;
  std::deque<Said> said_;
};

}  // namespace unisono::sim
