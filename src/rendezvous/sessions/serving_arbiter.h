// The arbiter once all have met, or a standby's that waits for those who have lost theirs: who is
// connected to it, what it decides on what they say, and what it tells them. No sockets, no clock:
// arbiter_loop has these, tests/sim a simulated network.
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/failure/failure_decider.h"
#include "rendezvous/failure/quorum.h"
#include "rendezvous/failure/shrink_agreements.h"
#include "rendezvous/failure/silence.h"
#include "rendezvous/failure/witnesses.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/rejoin_message.h"
#include "rendezvous/sessions/succession.h"

namespace unisono::rendezvous {

/// The connections of an arbiter, as it uses them. Each has a number of its own while it is open.
class ArbiterLinks {
 public:
  virtual ~ArbiterLinks() = default;
  /// A whole message; in order.
  virtual void send(int connection, std::shared_ptr<const std::string> bytes) = 0;
  virtual void close(int connection) = 0;
  /// It has not taken all that it was sent.
  virtual bool is_behind(int connection) const = 0;
  /// A standby's serves from now on; nobody knows it yet.
  virtual void on_taken_over() = 0;
};

class ServingArbiter final : private Evidence {
 public:
  struct Options {
    Rank self = 0;  ///< whose process it is
    bool is_standbys = false;
    std::chrono::milliseconds silence{0};  ///< as RendezvousPoint::silence
    /// A standby's: ControlSession::arbiter_heard_at() of its own rank. Empty: as if that were now.
    std::function<TimePoint()> heard_at{};
  };
  /// `members`: of the whole job. `links` outlives it.
  ServingArbiter(std::vector<Member> members, const Options& options, ArbiterLinks& links,
                 TimePoint now);

  /// A rank that has met the others here.
  void seat(int connection, Rank rank, TimePoint now);
  /// A rank that has lost its arbiter comes to this standby's, or says that it leaves.
  void on_rejoin(int connection, RejoinMessage told, TimePoint now);
  bool is_seated(int connection) const { return seats_.contains(connection); }

  // What happens on a connection that is seated, which may be closed by it.
  /// Something has come; before what it is.
  void on_heard(int connection, TimePoint now);
  void on_message(int connection, const Message& message, TimePoint now);
  void on_violation(int connection, const Status& what);
  struct Closing {
    bool is_new = false;  ///< what it said with its greeting was not read yet: it may come anew
    bool is_end = true;   ///< by the word of the other end's kernel; else nobody answers there
  };
  void on_closed(int connection, TimePoint now, const Closing& how);

  /// Before what has happened, whenever its owner wakes. `suspended`: as Silence::on_wake().
  void on_turn(TimePoint now, Duration suspended = {}) {
    silence_.on_wake(now, suspended);
    shrinks_.on_wake(now, suspended);
  }
  /// After it, and by next_due().
  void on_wake(TimePoint now);
  TimePoint next_due() const;
  /// Its process ends, without a failure if its own rank has left.
  void stop(bool own_rank_left, TimePoint now);

  /// It is no standby's, or no more.
  bool has_taken_over() const { return phase_ != Phase::kStandingBy; }
  bool is_standbys() const { return succession_.has_value(); }
  /// It has taken over lately because of a death: ranks have yet to come, or to be missed.
  bool awaits_ranks() const {
    return follows_death_ && succession_->has_taken_over() && succession_->next_due() != kNever;
  }
  /// The rank whose process it is has said goodbye here.
  bool has_own_rank_left() const { return own_rank_left_; }
  /// Nobody is connected any more, nor awaited.
  bool is_done() const;

 private:
  enum class Phase : std::uint8_t { kStandingBy, kServing, kDone };
  enum class Parting : std::uint8_t {
    kLeft,
    kWithdrew,
    kEnded,   ///< its process has
    kClosed,  ///< it may live
  };
  struct Said {
    Rank target;  // -1: all
    std::shared_ptr<const std::string> bytes;
  };

  bool is_standby(Rank rank) const;
  // Evidence
  bool has_ended(Rank rank) const override {
    // To a standby's rank a reset connection looks as if the other end had ended; others may still
    // be with that one.
    const bool may_others_live = ended_.size() + 1 < static_cast<std::size_t>(size_);
    return ended_.contains(rank) && !(own_word_.contains(rank) && may_others_live);
  }
  bool may_answer(Rank rank) const override {
    const bool is_silent = !silence_.is_off() && !silence_.listens_for(rank);
    return connections_.contains(rank) && !is_silent && !deaf_.contains(rank);
  }
  bool is_heard(Rank rank, TimePoint now) const {
    return connections_.contains(rank) && silence_.hears(rank, now) && !deaf_.contains(rank);
  }
  bool is_awaited(Rank rank) const override {
    return succession_ && succession_->next_due() != kNever && !succession_->has_come(rank);
  }
  HostKey host_of(Rank rank) const override { return host_key(decider_.member(rank)); }
  std::vector<Rank> other_holders() const override;

  const Member& self() const { return decider_.member(options_.self); }
  /// Ok, or what the rank did wrong.
  Status take(Rank from, const Message& message, TimePoint now);
  Status on_beat(Rank from, const Message& message, TimePoint now);
  void on_deposed(Rank from, const DeposedMessage& told, TimePoint now);
  void unseat(int connection, Parting how, const Status& violation = {});
  void tell_departure(Rank rank);
  /// What it has said on this connection can be its last word.
  bool proves_end(Rank rank, TimePoint now) const;
  /// Nobody hears it any more, wherever it is; all are to know.
  void note_ended(Rank rank);
  void say_decisions(TimePoint now);
  /// To a rank that is seated, or with -1 to all that are.
  void say(Rank target, const std::shared_ptr<const std::string>& bytes);
  void say(Rank target, std::string bytes);
  /// For ranks that come later.
  void remember(Rank target, std::shared_ptr<const std::string> bytes);
  void add_seat(int connection, Rank rank);
  void close(int connection);
  void close_all();
  std::vector<Rank> seated_ranks() const;

  // Where arbiters are lost (arbiter_succession.cc).
  void note_goodbye(int connection, RejoinMessage told);
  /// To one that is not seated, and closes its connection.
  void answer(int connection, std::string bytes);
  void learn(RejoinMessage told);
  void take_over(TimePoint now);
  void welcome_back(int connection, TimePoint now);
  void look_after_succession(TimePoint now);
  /// To those that have come, and its own rank has not.
  std::string answer_without_own_rank(TimePoint now) const;
  void judge_missing(const std::vector<Rank>& missing, TimePoint now);
  /// True where this part is the smaller one, and another arbiter may serve the others.
  bool is_minority(const Parts& parts, TimePoint now) const;
  void end_minority(const Parts& parts, TimePoint now);
  std::set<Rank> not_here(const std::vector<Rank>& ranks) const;
  void look_after_silence(TimePoint now);
  /// Of those that are seated.
  Parts heard_parts(TimePoint now) const;
  void judge_silent(const std::vector<Rank>& silent, TimePoint now);
  void ask_witnesses(const std::vector<Rank>& overdue);
  void abdicate();

  const Options options_;
  const int size_;
  ArbiterLinks& links_;
  Phase phase_;
  const std::vector<Rank> standbys_;
  FailureDecider decider_;
  ShrinkAgreements shrinks_;
  Silence silence_;
  Witnesses witnesses_;
  std::map<Rank, TimePoint> missed_until_;  // lately it was not heard, or deaf, though both ran
  std::set<Rank> deaf_;                     // it is heard, and does not hear this arbiter
  std::set<Rank> unanswered_;               // it has come, and said nothing since it was welcomed
  std::map<int, Rank> seats_;               // by connection
  std::map<Rank, int> connections_;         // the same by rank
  bool follows_death_ = false;              // a standby's: those that came know of one
  std::set<Rank> ended_;                    // has_ended()
  std::set<Rank> own_word_;                 // of ended_, whose end a standby's rank alone has seen
  std::vector<Rank> newly_ended_;           // of ended_, of whom nobody was told yet
  std::map<Rank, std::uint32_t> attempts_;  // of those that came, the latest
  std::set<Rank> deposers_;                 // have gone to another arbiter
  std::optional<DeposedMessage> deposed_;   // the job goes on without this arbiter
  bool own_rank_left_ = false;
  bool has_ended_minority_ = false;
  std::optional<Succession> succession_;  // of a standby's
  std::vector<RejoinMessage> rejoined_;   // until it takes over, or refuses those that have come
  std::deque<Said> said_;                 // a standby's: what ranks that come later have missed
};

}  // namespace unisono::rendezvous
