// The arbiter's event loop: gathers the ranks of one job, hands out the world, then carries
// reports in and decisions out until every rank is gone. Sockets and timers are here; what is
// decided is decided in Rendezvous and ServingArbiter. Runs on a thread of its own in rank 0's
// process (arbiter_server.h); that thread only. A standby's loop begins with a world that has met:
// it waits for ranks that have lost the arbiter and serves those.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/arbiter/strangers.h"
#include "rendezvous/failure/silence.h"
#include "rendezvous/sessions/rendezvous.h"
#include "rendezvous/sessions/serving_arbiter.h"
#include "rendezvous/sockets/control_stream.h"

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
  Rank self = 0;                            ///< whose process it is
  std::vector<Member> members;              ///< a standby's: the world that has met
  std::chrono::milliseconds silence{0};     ///< as RendezvousPoint::silence
  std::chrono::milliseconds warn_after{0};  ///< as RendezvousPoint::warn_after
  bool comes_once = false;                  ///< as RendezvousPoint::comes_once
  /// A standby's: ControlSession::arbiter_heard_at() of its own rank.
  std::shared_ptr<const std::atomic<TimePoint>> heard_at;
};

class ArbiterLoop final : private ArbiterLinks {
 public:
  /// `rank_zero` is the arbiter's end of rank 0's connection, none of a standby's; `stop` becomes
  /// readable when the process ends and outlives the loop. kOutOfResources without descriptors to
  /// wait with.
  static Result<std::unique_ptr<ArbiterLoop>> open(ArbiterOptions options, GuardedFd rank_zero,
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
  enum class Phase : std::uint8_t { kGathering, kServing, kEnding, kDone };
  struct Seat {
    ControlStream stream;
    Rank rank;
    bool proved_key;
    bool writing = false;  // the epoll set waits for room to write
    bool is_new = true;    // what it said with its greeting is not read yet
  };
  using Seats = std::map<int, Seat>;  // by descriptor

  ArbiterLoop(ArbiterOptions options, UniqueFd epoll, int stop);

  // ArbiterLinks
  void send(int fd, std::shared_ptr<const std::string> bytes) override {
    send(&seats_.at(fd), std::move(bytes));
  }
  void close(int fd) override;
  bool is_behind(int fd) const override { return seats_.at(fd).stream.has_output(); }
  void on_taken_over() override { serves_ = true; }

  Status watch(int fd, std::uint32_t events);
  void watch_listeners();
  void close_listeners();
  const Listener* listener_at(int fd) const;
  void on_connection(int fd);
  void accept_from(const Listener& listener);
  void seat(Strangers::Arrival arrival);
  void seat_again(Strangers::Arrival arrival);
  void turn_away_newcomers(bool awaits_more);
  int find_seat(Rank rank) const;
  void tell_who_awaits(Seat* newcomer);
  void beat_while_gathering();
  void read_all_seats();
  void read_seat(int fd);
  void hear_from(int fd, bool open);
  void hear_while_gathering(int fd, bool open);
  /// Ok, or what the rank did wrong.
  Status on_message_while_gathering(Rank from, const Message& message);
  void on_timers();
  void welcome();
  void begin_serving(const std::vector<Member>& members);
  void fail(const Status& why);
  void stop();
  void end();
  void send(Seat* seat, std::shared_ptr<const std::string> bytes);
  void write_seat(Seat* seat);
  void settle();
  TimePoint next_due() const;
  bool is_standbys() const { return arbiter_ && arbiter_->is_standbys(); }

  ArbiterOptions options_;
  Phase phase_ = Phase::kGathering;
  Strangers strangers_;
  Rendezvous rendezvous_;
  Silence beats_;                          // of the time before all have met
  std::optional<ServingArbiter> arbiter_;  // once all have met
  Seats seats_;
  std::size_t backlog_bytes_max_;
  std::atomic<bool> own_rank_left_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> serves_;
  std::shared_ptr<const std::string> refusal_;  // once ending
  std::set<Rank> told_;                         // who has got it
  TimePoint ending_until_ = kNever;
  TimePoint now_;
  int stop_;
  bool listening_ = true;  // the listeners are armed in the epoll set
  UniqueFd epoll_;
};

}  // namespace unisono::rendezvous
