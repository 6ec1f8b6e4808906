// The arbiter's event loop: gathers the ranks of one job, hands out the world, then carries
// reports in and decisions out until every rank is gone. Sockets and timers are here; what is
// decided is decided in Rendezvous, FailureDecider and ShrinkAgreements. Runs on a thread of its
// own in rank 0's process (arbiter_server.h); that thread only. A standby's loop begins with a
// world that has met: it waits for ranks that have lost the arbiter and serves those (Succession).
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/failure_decider.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/shrink_agreements.h"
#include "rendezvous/silence.h"
#include "rendezvous/strangers.h"
#include "rendezvous/succession.h"

namespace unisono {
class Store;
}

namespace unisono::rendezvous {

struct ArbiterOptions {
  int size = 1;
  const Store* store = nullptr;  ///< that ranks meet in; null: none. It may be gone
  std::string rendezvous;        ///< the name that ranks meet at, among others in the store
  std::string job_id;            ///< of the world
  std::string handshake_job_id;  ///< what TCP ranks know before they have met
  JobKey key;
  TimePoint started;
  TimePoint deadline;  ///< of the rendezvous
  std::vector<Listener> listeners;
  Rank self = 0;                         ///< whose process it is
  std::vector<Member> members;           ///< a standby's: the world that has met
  std::chrono::milliseconds silence{0};  ///< as RendezvousPoint::silence
};

class ArbiterLoop {
 public:
  /// `rank_zero` is the arbiter's end of rank 0's connection, none of a standby's; `stop` becomes
  /// readable when the process ends and outlives the loop. kOutOfResources without descriptors to
  /// wait with.
  static Result<std::unique_ptr<ArbiterLoop>> open(ArbiterOptions options, UniqueFd rank_zero,
                                                   int stop);
  /// Returns when all ranks are gone, the rendezvous failed, or `stop` was given.
  void run();
  /// Any thread: the rendezvous has failed, and the loop lingers only to tell late ranks why.
  bool failed() const { return failed_; }
  /// Any thread: it is no standby, or no more.
  bool has_taken_over() const { return serves_; }
  /// Any thread: the rank whose process it is left before it had taken over.
  void note_own_rank_left() { own_rank_left_ = true; }

 private:
  enum class Phase : std::uint8_t { kGathering, kStandingBy, kServing, kEnding, kDone };
  struct Seat {
    ControlStream stream;
    Rank rank;
    bool proved_key;
    bool writing = false;  // the epoll set waits for room to write
    bool is_new = true;    // what it said with its greeting is not read yet
  };

  ArbiterLoop(ArbiterOptions options, UniqueFd epoll, int stop);
  Status watch(int fd, std::uint32_t events);
  void watch_listeners();
  void close_listeners();
  const Listener* listener_at(int fd) const;
  void on_connection(int fd);
  void accept_from(const Listener& listener);
  void seat(Strangers::Arrival arrival);
  void seat_again(Strangers::Arrival arrival);
  void learn(RejoinMessage told);
  void take_over();
  void welcome_back(Seat* seat);
  void look_after_succession();
  void judge_missing(const std::vector<Rank>& missing);
  void end_minority(const std::string& why);
  std::set<Rank> not_here(const std::vector<Rank>& ranks) const;
  void judge_silent(const std::vector<Rank>& silent);
  std::vector<Rank> seated_ranks() const;
  void tell_departure(Rank rank);
  void turn_away_newcomers();
  /// For ranks that come later.
  void remember(Rank target, std::shared_ptr<const std::string> bytes);
  void look_after_silence();
  void abdicate();
  std::map<int, Seat>::iterator find_seat(Rank rank);
  void read_all_seats();
  void read_seat(int fd);
  /// Ok, or what the rank did wrong.
  Status on_message(Seat* seat, const Message& message);
  Status on_message_while_gathering(const Seat& seat, const Message& message);
  void on_timers();
  void welcome();
  void fail(const Status& why);
  void say_decisions();
  void stop();
  void send(Seat* seat, std::shared_ptr<const std::string> bytes);
  void write_seat(Seat* seat);
  void settle();
  TimePoint next_due() const;

  ArbiterOptions options_;
  Phase phase_ = Phase::kGathering;
  Strangers strangers_;
  Rendezvous rendezvous_;
  std::optional<FailureDecider> decider_;  // once serving
  ShrinkAgreements shrinks_;
  Silence silence_;
  std::optional<DeposedMessage> deposed_;  // the job goes on without this arbiter
  std::map<int, Seat> seats_;              // by descriptor
  std::size_t backlog_bytes_max_;
  std::atomic<bool> own_rank_left_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> serves_;
  std::optional<Succession> succession_;  // of a standby's
  std::vector<RejoinMessage> rejoined_;   // until it takes over
  struct Said {
    Rank target;  // -1: all
    std::shared_ptr<const std::string> bytes;
  };
  std::deque<Said> said_;  // a standby's: what ranks that come later have missed
  std::shared_ptr<const std::string> refusal_;  // once ending
  std::set<Rank> told_;                         // who has got it
  TimePoint ending_until_ = kNever;
  TimePoint now_;
  int stop_;
  bool listening_ = true;  // the listeners are armed in the epoll set
  UniqueFd epoll_;
};

}  // namespace unisono::rendezvous
