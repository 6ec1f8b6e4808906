// A rank's side of its control connection once all have met: what it tells the arbiter and takes
// along to the next one, what it hears, and where it goes when the arbiter is lost or silent. No
// sockets, no clock, no lock: control_connection has these, tests/sim a simulated network.
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/failure/failure_decider.h"
#include "rendezvous/failure/shrink_memory.h"
#include "rendezvous/failure/silence.h"
#include "rendezvous/failure/standby.h"
#include "rendezvous/failure/witnesses.h"
#include "rendezvous/messages/arbiter_connection.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/shrink_message.h"
#include "rendezvous/sessions/job_record.h"

namespace unisono::rendezvous {

/// For how long a rank that leaves waits until the arbiter has heard it, since a stopped one does
/// not, and then until the standbys have, each of which has an equal share of what is left.
inline constexpr std::chrono::milliseconds kGoodbyeTime{500};

/// The connections of a rank, as its session uses them.
class ControlLinks {
 public:
  virtual ~ControlLinks() = default;
  /// A whole message to the arbiter; in order.
  virtual void send(std::string bytes) = 0;
  /// Closes the connection to the arbiter. Idempotent.
  virtual void close() = 0;
  /// Goes to `standby`; gives up the attempt before. ControlSession::on_dialled() is told how it
  /// ends, but not from within this call.
  virtual void dial(Rank standby, const RejoinMessage& greeting, TimePoint now) = 0;
  /// Tells a standby that it came to that it gives up, lest this rank is taken for dead.
  /// Idempotent.
  virtual void give_up() = 0;
  /// What can be seen of the process of a rank on the same host.
  virtual ProcessSight sight_of(Rank rank) const = 0;
  /// Asks the process of a rank over the network, past the arbiter. ControlSession::on_probed() is
  /// told how that ends, but not from within this call; never where it cannot be asked.
  virtual void probe(Rank rank, TimePoint now) = 0;
  /// The standby's connection is the arbiter's from now on; closes the one before.
  virtual void move() = 0;
};

class ControlSession {
 public:
  /// `members`, of the whole job, and `links` outlive it. `silence`: as RendezvousPoint::silence.
  ControlSession(const std::vector<Member>& members, Rank self, std::string job_id,
                 std::chrono::milliseconds silence, ControlLinks& links, TimePoint now);

  // What the rank says.
  /// A whole message to the arbiter; dropped where there is none.
  void report(std::string bytes);
  /// The same of what the next arbiter needs to hear as well, if this one does not answer.
  void report_lasting(std::string bytes, TimePoint now);
  void report_broken_link(Rank peer, const Status& cause, TimePoint now);
  void report_waiting(const WaitMessage& wait);
  void report_timeout(const WaitMessage& wait, TimePoint now);
  void withdraw_timeout(const WaitMessage& wait);
  void say_shrink(const ShrinkMessage& message);
  /// Says goodbye, to the next arbiter as well if this one ends before it has heard it. The rank
  /// has left once an arbiter says that it has told the others.
  void leave();
  /// No arbiter has answered: says it to each standby, of which one may hold the next, last to
  /// those that have not answered before. The rank has left once all have heard it that can, or had
  /// their time.
  void say_goodbye_to_standbys(TimePoint now);
  /// It has left, whoever has heard of it. What is open stays so, and nothing that happens there
  /// matters any more.
  void end();

  // What happens on the connection to the arbiter.
  /// Something has come; before what it is.
  void on_heard(TimePoint now);
  void on_message(const Message& message, TimePoint now);
  void on_nonsense(TimePoint now);
  /// `is_end`: by the word of the other end's kernel.
  void on_closed(TimePoint now, bool is_end = true);

  void on_dialled(DialOutcome outcome, TimePoint now);
  void on_probed(Rank rank, bool is_reached);
  /// Before what has happened, whenever its owner wakes. `suspended`: as Silence::on_wake().
  void on_wake(TimePoint now, Duration suspended = {}) { silence_.on_wake(now, suspended); }
  /// After it; of a standby that is told a goodbye, too.
  void look_for_silence(TimePoint now);
  void beat(TimePoint now);
  /// Of silence, beat and answers to a goodbye.
  TimePoint next_due() const {
    return tells_standbys_ ? std::min(silence_.next_due(), answers_until_) : silence_.next_due();
  }

  bool is_open() const { return state_ == State::kOpen; }
  /// There is a connection to an arbiter, which may be silent.
  bool is_connected() const { return state_ == State::kOpen || suspects_; }
  bool is_seeking() const { return state_ == State::kSeeking; }
  bool has_left() const { return state_ == State::kLeft; }
  /// This process holds the arbiter, or is about to.
  bool is_with_own_arbiter() const { return (is_seeking() ? dialled_ : holder_) == self_; }
  /// Nobody answers any more, nor will.
  bool is_lost() const { return state_ == State::kAlone || state_ == State::kLeft; }
  /// Once it is lost: JobRecord::is_last().
  bool is_last() const { return is_last_; }
  bool is_standby() const { return record_.is_standby(); }
  /// Once it is lost: kPartitioned where others may go on without this rank, else ok.
  const Status& partition() const { return partition_; }
  std::chrono::milliseconds silence() const { return silence_.limit(); }
  /// When the arbiter has shown last that it lives, for those that come to this standby. kNever:
  /// silence means nothing. TimePoint::min(): this rank does without one, and follows none.
  TimePoint arbiter_heard_at() const {
    if (state_ == State::kAlone) return TimePoint::min();
    return silence_.is_off() ? kNever : heard_at_;
  }

  bool has_news() const { return has_news_; }
  ArbiterNews take_news() {
    has_news_ = false;
    return std::exchange(news_, {});
  }

 private:
  enum class State : std::uint8_t {
    kOpen,
    kSeeking,  ///< goes to a standby: the arbiter is lost, or suspected
    kAlone,    ///< there is no arbiter any more
    kLeft,
  };
  struct Report {
    TimePoint when;
    std::string bytes;
    Rank peer = -1;  // of a broken link
    Status cause = {};
    std::optional<std::pair<std::uint32_t, std::uint64_t>> late = {};  // communicator, operation
  };

  const Member& member(Rank rank) const { return members_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(members_.size()); }
  void keep(Report report);
  void drop_old_reports(TimePoint now);
  /// False: no arbiter sends this.
  bool take(const Message& message, TimePoint now);
  bool on_departed(const Message& message);
  /// Of which rank the arbiter asks; none where it says no rank, or this one.
  std::optional<Rank> other_rank(const Message& message) const;
  ProcessSight sight_of(Rank rank) const;
  bool tell_left_out(std::uint32_t communicator);
  void deliver(FailureDecision decision);
  void deliver_broken_link(Rank peer, const Status& cause);
  /// The arbiter died or talks nonsense; `how` completes what is said of its rank.
  void lose(ErrorCode code, const std::string& how, TimePoint now);
  /// The arbiter is silent. Whether it is lost a standby says.
  void suspect(TimePoint now);
  /// It is not, or not yet.
  void acquit(TimePoint now);
  /// It is: `successor` holds the arbiter, or with -1 nobody. Nothing where it is not suspected.
  void depose_silent(Rank successor);
  /// This rank goes on without it; `why` completes what is said of its rank.
  void depose(Rank successor, const std::string& why);
  /// `is_known`: the standby hears the arbiter; else it may be about to find out that it does not,
  /// and is asked again for as long as that takes, before the next one is.
  void on_refused(TimePoint now, bool is_known);
  void seek(TimePoint now);
  void dial(Rank standby, RejoinMessage greeting, TimePoint now);
  void move_to(Rank standby, TimePoint now);
  void say_goodbye_to_next(TimePoint now);
  void go_alone(TimePoint now);

  const std::vector<Member>& members_;
  const Rank self_;
  ControlLinks& links_;
  State state_ = State::kOpen;
  Rank holder_ = 0;                 // of the arbiter
  Rank dialled_ = -1;               // the standby that it goes to
  bool has_said_farewell_ = false;  // the holder
  Silence silence_;
  TimePoint heard_at_;     // the holder, by words that are not older than a stop of this rank
  bool suspects_ = false;  // while seeking: the holder may live yet
  TimePoint seek_until_{};
  std::uint32_t attempts_ = 0;   // to come to one
  int refusals_ = 0;             // by standbys, since the arbiter was heard
  TimePoint known_by_ = kNever;  // a standby that has said that it does not know does by then
  DecisionLedger ledger_;
  JobRecord record_;
  bool is_last_ = false;
  Status partition_;
  bool is_leaving_ = false;
  bool has_said_misses_ = false;  // and nothing since
  bool tells_standbys_ = false;   // while seeking: that it has left, and nothing else
  std::deque<Rank> untold_;       // those that are to hear it yet
  TimePoint tells_until_{};       // all of them, ...
  TimePoint answers_until_{};     // and until when the one that is told may answer
  ArbiterNews news_;
  bool has_news_ = false;
  std::deque<Report> reports_;  // lasting ones, the oldest first
  // By communicator: the latest report of a wait, which may be over.
  std::deque<std::pair<std::uint32_t, std::string>> waits_;
  ShrinkMemory shrinks_;
};

}  // namespace unisono::rendezvous
