// Decides for the ranks of all nodes: who is started when, and when the job has failed or is over.
// A state machine that hears of ranks and launchers and knows neither processes nor sockets. It may
// decide for the ranks of its own node alone: then the other nodes' are nobody's here. Values; one
// thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "tools/run/job_control.h"
#include "tools/run/restart_policy.h"

namespace unisono::run {

class JobDecisions {
 public:
  struct Setup {
    JobShape shape;
    int self = 0;          ///< the node of this launcher
    bool is_alone = true;  ///< it decides for the ranks of this node
    bool keep_going = false;
    /// Where everyone meets after so many restarts.
    std::function<Result<MeetingPoint>(int restarts)> next_meeting{};
    /// For how long launchers that have not come are waited for, where all ranks are to start.
    std::chrono::milliseconds patience{};
    Duration report_time{};  ///< that ranks have to end after a failure of the job
    Duration grace_time{};   ///< and after SIGTERM
  };
  struct Addressed {
    int node = 0;
    Order order;
  };

  JobDecisions(Setup setup, RejoiningFacts facts);

  void on_event(int node, const Event& event);
  /// False once no rank is started any more: who comes then comes for another job.
  bool takes_launchers() const { return !is_over_ && !has_failed_ && !policy_.is_ending(); }
  /// Ok, or kRendezvous: `node` has a launcher, which may be lost and not known to be.
  Status may_come(int node) const;
  void on_come(int node);
  /// Its launcher, and with it the ranks that it had.
  void on_lost(int node, const std::string& why);
  void say(const std::string& text) {
    push(setup_.self, {.kind = Order::Kind::kSay, .text = text});
  }

  // Where another launcher decides until it does no more.
  void note_start(int rank, int restarts) { policy_.on_start(rank, true, restarts); }
  void note_start_of_all(int restarts);
  void note_exit(int rank) { policy_.on_exit(rank); }
  /// From now on this one decides, and starts nobody.
  void take_over();

  /// Starts who is due, and finds that the job is over.
  void look(TimePoint now);
  std::optional<Addressed> next_order();
  TimePoint next_due() const { return std::min({next_absent(), end_until_, over_at_}); }
  /// Where a launcher goes, or this one decides no more.
  bool ranks_go_on() const {
    return setup_.shape.restart == Restart::kFailed && policy_.have_met();
  }

 private:
  enum class Phase {
    kGathering,  ///< all ranks are to start, once all launchers are here and nobody runs any more
    kRunning,
  };
  struct Node {
    bool is_here = false;
    bool has_left = false;   ///< it will not come again, and its ranks are nobody's here
    bool is_ending = false;  ///< its ranks, since all are to start
    bool knows_absent = false;
    TimePoint await_until = kNever;  ///< where it has not come
  };

  static std::size_t at(int node) { return static_cast<std::size_t>(node); }
  int node_of(int rank) const { return rank / setup_.shape.local_size; }
  void on_failure(int node, const std::vector<int>& ranks, const Failure& failure);
  std::string_view why_all() const;
  void on_told_to_end(int node);
  void leave(int node);
  void end_all(const Failure& failure, std::string text);
  void fail(int node, int rank, const Failure& failure);
  void leave_gathering();
  void gather(TimePoint now);
  void await_end(const std::vector<int>& ending, TimePoint now);
  void await(const std::vector<int>& absent, TimePoint now);
  void await_last_ranks(TimePoint now);
  /// By when a launcher that serves has ended its ranks, which have that time themselves.
  TimePoint end_time(TimePoint now, Duration of_ranks) const;
  void give_up(int node);
  std::vector<int> running_ranks(int node) const;
  TimePoint next_absent() const;
  std::string format_patience() const;
  void start_all();
  void start_due();
  void look_for_end(TimePoint now);
  void push(int node, Order order) { orders_.push_back({node, std::move(order)}); }
  void push_to_others(int than, const Order& order);
  void push_to_all(const Order& order) { push_to_others(-1, order); }

  Setup setup_;
  RestartPolicy policy_;
  std::vector<Node> nodes_;
  Phase phase_ = Phase::kGathering;
  MeetingPoint meeting_;
  bool has_failed_ = false;  // for good
  bool is_over_ = false;
  TimePoint end_until_ = kNever;  // launchers whose ranks are to end
  TimePoint over_at_ = kNever;    // unless a rank that waits is let in
  std::deque<Addressed> orders_;
};

}  // namespace unisono::run
