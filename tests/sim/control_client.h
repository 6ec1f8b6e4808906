// A rank's side of its control connection, over the production machines that know no socket
// (DecisionLedger, JobRecord, ShrinkMemory, Silence). It does what rendezvous/control_connection.cc
// does: hands on what the arbiter says, goes to a standby when the arbiter is lost or silent, and
// takes along what has not been answered.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/control_messages.h"
#include "rendezvous/failure_decider.h"
#include "rendezvous/job_record.h"
#include "rendezvous/shrink_memory.h"
#include "rendezvous/silence.h"

namespace unisono::sim {

/// What a client asks of the connections around it.
struct ControlLinks {
  /// To the arbiter that `standby` may hold; -1: nobody listens there.
  std::function<int(Rank standby, rendezvous::RejoinMessage greeting)> dial;
  std::function<void(int connection, std::string)> send;
  std::function<void(int connection)> close;
};

class ControlClient {
 public:
  struct News {
    std::vector<FailureDecision> decisions;
    std::vector<rendezvous::ShrinkMessage> shrink_words;
    bool asks_for_waits = false;
  };
  /// `world` outlives it.
  ControlClient(const World& world, int connection, std::chrono::milliseconds silence,
                ControlLinks links, TimePoint now);

  void report(std::string bytes);
  void report_lasting(std::string bytes, TimePoint now);
  void report_broken_link(Rank peer, const Status& cause, TimePoint now);
  void report_waiting(const rendezvous::WaitMessage& wait);
  void say_shrink(const rendezvous::ShrinkMessage& message);
  /// Nobody answers any more, nor will.
  bool is_lost() const { return state_ == State::kAlone || state_ == State::kLeft; }
  News take_news() { return std::exchange(news_, {}); }
  bool is_seeking() const { return state_ == State::kSeeking; }
  void leave();

  void on_message(int connection, std::string_view bytes, TimePoint now);
  void on_closed(int connection, TimePoint now);
  void on_wake(TimePoint now);
  TimePoint next_due() const;

 private:
  enum class State : std::uint8_t { kOpen, kSeeking, kAlone, kLeft };
  struct Report {
    TimePoint when;
    std::string bytes;
    Rank peer = -1;  // of a broken link
    Status cause = {};
  };
  /// An attempt to come to a standby.
  struct Dial {
    Rank standby;
    TimePoint due;
    rendezvous::RejoinMessage greeting;
    int connection = -1;  // none: it was turned away, and comes again
    TimePoint again{};
  };

  bool is_connected() const { return state_ == State::kOpen || suspects_; }
  void keep(Report report, TimePoint now);
  void drop_old_reports(TimePoint now);
  void take(std::string_view bytes, TimePoint now);
  void deliver(FailureDecision decision);
  void deliver_broken_link(Rank peer, const Status& cause);
  void lose(TimePoint now);
  void suspect(TimePoint now);
  void acquit(TimePoint now);
  void depose(Rank successor);
  void on_answer(std::string_view bytes, TimePoint now);
  void on_refused(TimePoint now);
  void seek(TimePoint now);
  void dial(TimePoint now);
  void give_dial_up();
  void move_to_standby(TimePoint now);
  void go_alone(TimePoint now);

  const World& world_;
  int connection_;
  const ControlLinks links_;
  State state_ = State::kOpen;
  Rank holder_ = 0;
  rendezvous::Silence silence_;
  bool suspects_ = false;
  TimePoint seek_until_{};
  int refusals_ = 0;
  rendezvous::DecisionLedger ledger_;
  rendezvous::JobRecord record_;
  News news_;
  std::deque<Report> reports_;
  std::deque<std::pair<std::uint32_t, std::string>> waits_;
  rendezvous::ShrinkMemory shrinks_;
  std::optional<Dial> dial_;
};

}  // namespace unisono::sim
