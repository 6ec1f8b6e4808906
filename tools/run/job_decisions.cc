#include "tools/run/job_decisions.h"

#include <fmt/format.h>

#include <utility>

#include "tools/common/sizes.h"
#include "tools/run/process_group.h"

namespace unisono::run {
namespace {

using Decision = RestartPolicy::Decision;

// How long ranks that wait in init() may do so when nobody is left to let them in.
constexpr auto kLastWaitTime = std::chrono::seconds(1);

std::string launchers_of(const std::vector<int>& nodes) {
  const char* const plural = nodes.size() > 1 ? "s" : "";
  return fmt::format("the launcher{0} of node{0} {1}", plural, fmt::join(nodes, ", "));
}

std::string launcher_of(int node) { return fmt::format("the launcher of node {}", node); }

}  // namespace

JobDecisions::JobDecisions(Setup setup, RejoiningFacts facts)
    : setup_(std::move(setup)),
      policy_(setup_.shape.restart, setup_.shape.max_restarts, std::move(facts)),
      nodes_(at(setup_.shape.node_count), Node{.has_left = setup_.is_alone}) {
  nodes_[at(setup_.self)] = Node{.is_here = true};
}

void JobDecisions::leave_gathering() {
  phase_ = Phase::kRunning;
  end_until_ = kNever;
  for (Node& node : nodes_) node.await_until = kNever;
}

void JobDecisions::note_start_of_all(int restarts) {
  policy_.forget_all();
  for (int i = 0; i < setup_.shape.local_size; ++i) {
    policy_.on_start(setup_.shape.first_rank(setup_.self) + i, false, restarts);
  }
}

void JobDecisions::take_over() {
  leave_gathering();
  policy_.on_end();
}

void JobDecisions::on_event(int node, const Event& event) {
  if (is_over_ && event.kind != Event::Kind::kExited) return;
  switch (event.kind) {
    case Event::Kind::kExited:
      return policy_.on_exit(event.rank);
    case Event::Kind::kFailed:
      policy_.on_exit(event.rank);
      return on_failure(node, {event.rank}, event.failure);
    case Event::Kind::kLastFailure:
      leave_gathering();
      if (std::exchange(has_failed_, true)) return;
      return push_to_others(node, {.kind = Order::Kind::kFail, .failure = event.failure});
    case Event::Kind::kEnding:
      return on_told_to_end(node);
    case Event::Kind::kGone:
      nodes_[at(node)].is_ending = false;
      return;
  }
}

Status JobDecisions::may_come(int node) const {
  if (!nodes_[at(node)].is_here) return Status();
  return {
      ErrorCode::kRendezvous,
      fmt::format("node {0} has a launcher already: give each machine a --node-rank of its own, "
                  "from 0 to {1} (one whose machine has crashed counts as lost within 15 s)",
                  node, setup_.shape.node_count - 1)};
}

void JobDecisions::on_come(int node) {
  nodes_[at(node)].is_here = true;
  nodes_[at(node)].knows_absent = false;
  nodes_[at(node)].await_until = kNever;
  if (phase_ == Phase::kRunning) say(launcher_of(node) + " has come again");
}

void JobDecisions::on_lost(int node, const std::string& why) {
  Node& lost = nodes_[at(node)];
  if (!std::exchange(lost.is_here, false) || is_over_) return;
  lost.is_ending = false;
  const std::vector<int> ranks = running_ranks(node);
  for (const int rank : ranks) policy_.on_exit(rank);
  const Failure failure{1, fmt::format("{} is lost: {}", launcher_of(node), why)};
  if (phase_ == Phase::kRunning && !ranks.empty()) return on_failure(node, ranks, failure);
  say(failure.what);
  // Whoever waits hears of this one too.
  for (Node& each : nodes_) each.knows_absent = false;
}

// Of one rank, or of all that a lost launcher had.
void JobDecisions::on_failure(int node, const std::vector<int>& ranks, const Failure& failure) {
  if (phase_ == Phase::kGathering) return;  // it ends with all others
  const int restarts_before = policy_.restarts();
  const Decision decision = policy_.on_failure(ranks, !has_failed_);
  const bool has_launcher = nodes_[at(node)].is_here;
  const int rank = has_launcher ? ranks.front() : -1;
  const auto starting = [&](const std::string& who, std::string_view why = "") {
    return fmt::format(
        "{}; starting {} again{} ({} of {}{})", failure.what, who, why, policy_.restarts(),
        tools::counted(setup_.shape.max_restarts, "restart", "restarts"),
        policy_.restarts() != restarts_before ? "" : ", counted with the failure before");
  };
  const auto order_there = [&](Order::Kind kind, const std::string& text) {
    if (node != setup_.self) say(text);
    if (has_launcher) push(node, {.kind = kind, .rank = rank, .text = text});
  };
  switch (decision) {
    case Decision::kFailed:
      return fail(node, rank, failure);
    case Decision::kGoesOn:
      return order_there(Order::Kind::kSay, failure.what + "; the others go on without it");
    case Decision::kRankRestarts:
      return order_there(Order::Kind::kClear,
                         has_launcher ? starting(fmt::format("rank {}", rank))
                                      : starting("its ranks", " once it has come again"));
    case Decision::kAllRestart:
      return end_all(failure, starting("all ranks", why_all()));
  }
}

std::string_view JobDecisions::why_all() const {
  if (setup_.shape.restart == Restart::kAll) return "";
  return policy_.have_met() ? ", as none is left to rejoin" : ", as they have not met yet";
}

// Its ranks end on purpose. Where it is the one that decides, the others have none any more.
void JobDecisions::on_told_to_end(int node) {
  const bool go_on = phase_ == Phase::kRunning && ranks_go_on();
  const char* const when = phase_ == Phase::kGathering ? " before all ranks had started"
                           : setup_.shape.restart == Restart::kFailed ? " before all ranks had met"
                                                                      : "";
  policy_.on_end();
  if (node == setup_.self) {
    const std::string text = launcher_of(node) + " was told to end";
    push_to_others(node, {.kind = Order::Kind::kAlone, .text = text});
    for (int other = 0; other < setup_.shape.node_count; ++other) {
      if (other != node) leave(other);
    }
  } else {
    say(launcher_of(node) + " was told to end; no rank is started again");
    leave(node);
  }
  leave_gathering();
  if (go_on || node == setup_.self) return;
  fail(setup_.self, -1, {1, launcher_of(node) + " was told to end" + when});
}

void JobDecisions::leave(int node) {
  nodes_[at(node)] = Node{.has_left = true};
  for (int i = 0; i < setup_.shape.local_size; ++i) {
    policy_.on_exit(setup_.shape.first_rank(node) + i);
  }
}

void JobDecisions::end_all(const Failure& failure, std::string text) {
  phase_ = Phase::kGathering;
  for (Node& node : nodes_) node.is_ending = node.is_here;
  push_to_all({.kind = Order::Kind::kEndAll, .text = std::move(text), .failure = failure});
}

// The first one is everybody's, others are told where they happened.
void JobDecisions::fail(int node, int rank, const Failure& failure) {
  const Order order{.kind = Order::Kind::kFail, .rank = rank, .failure = failure};
  if (!std::exchange(has_failed_, true)) return push_to_all(order);
  push(nodes_[at(node)].is_here ? node : setup_.self, order);
}

void JobDecisions::push_to_others(int than, const Order& order) {
  for (int node = 0; node < setup_.shape.node_count; ++node) {
    if (node != than && nodes_[at(node)].is_here) push(node, order);
  }
}

void JobDecisions::look(TimePoint now) {
  if (phase_ == Phase::kGathering) gather(now);
  if (phase_ == Phase::kGathering) return;
  start_due();
  await_last_ranks(now);
  look_for_end(now);
}

void JobDecisions::gather(TimePoint now) {
  std::vector<int> ending, absent;
  for (int node = 0; node < setup_.shape.node_count; ++node) {
    const Node& each = nodes_[at(node)];
    if (each.is_ending) ending.push_back(node);
    if (!each.is_here && !each.has_left) absent.push_back(node);
  }
  if (!ending.empty()) return await_end(ending, now);
  end_until_ = kNever;
  if (absent.empty()) return start_all();
  await(absent, now);
}

// This launcher's own supervisor sees to its ranks.
void JobDecisions::await_end(const std::vector<int>& ending, TimePoint now) {
  if (ending == std::vector{setup_.self}) {
    end_until_ = kNever;
    return;
  }
  if (end_until_ == kNever) end_until_ = end_time(now, setup_.grace_time);
  if (now < end_until_) return;
  for (const int node : ending) {
    if (node != setup_.self) give_up(node);
  }
  gather(now);
}

TimePoint JobDecisions::end_time(TimePoint now, Duration of_ranks) const {
  return later(later(now, setup_.patience),
               std::chrono::ceil<std::chrono::milliseconds>(of_ranks + kKillTime));
}

void JobDecisions::give_up(int node) {
  const std::string why =
      fmt::format("its ranks have not ended within {} (UNISONO_TIMEOUT)", format_patience());
  push(node, {.kind = Order::Kind::kAlone,
              .text = "the launcher of node 0 has given up this one: " + why});
  on_lost(node, why);
}

std::vector<int> JobDecisions::running_ranks(int node) const {
  std::vector<int> ranks;
  for (int i = 0; i < setup_.shape.local_size; ++i) {
    const int rank = setup_.shape.first_rank(node) + i;
    if (policy_.runs(rank)) ranks.push_back(rank);
  }
  return ranks;
}

// Once the job has failed each launcher ends its ranks; one that is stopped itself does not.
void JobDecisions::await_last_ranks(TimePoint now) {
  if (!has_failed_ || setup_.keep_going) return;
  std::vector<int> late;
  for (int node = 0; node < setup_.shape.node_count; ++node) {
    const bool is_awaited = node != setup_.self && nodes_[at(node)].is_here;
    if (is_awaited && !running_ranks(node).empty()) late.push_back(node);
  }
  if (late.empty()) {
    end_until_ = kNever;
    return;
  }
  if (end_until_ == kNever) end_until_ = end_time(now, setup_.report_time + setup_.grace_time);
  if (now < end_until_) return;
  end_until_ = kNever;
  for (const int node : late) give_up(node);
}

std::string JobDecisions::format_patience() const {
  return tools::format_duration(setup_.patience);
}

// Each has its own time from when it was missed: that it is missed again and again gives no other
// one more.
void JobDecisions::await(const std::vector<int>& absent, TimePoint now) {
  const std::string patience = format_patience();
  std::vector<int> due;
  for (const int node : absent) {
    TimePoint& until = nodes_[at(node)].await_until;
    if (until == kNever) until = later(now, setup_.patience);
    if (now >= until) due.push_back(node);
  }
  for (int node = 0; node < setup_.shape.node_count; ++node) {
    if (!nodes_[at(node)].is_here || std::exchange(nodes_[at(node)].knows_absent, true)) continue;
    push(node, {.text = fmt::format("waiting up to {} for {}", patience, launchers_of(absent))});
  }
  if (due.empty()) return;
  leave_gathering();
  fail(setup_.self, -1,
       {1, fmt::format("{} did not come within {} (UNISONO_TIMEOUT): run the same command there, "
                       "with its --node-rank",
                       launchers_of(due), patience)});
}

TimePoint JobDecisions::next_absent() const {
  TimePoint next = kNever;
  for (const Node& node : nodes_) next = std::min(next, node.await_until);
  return next;
}

void JobDecisions::start_all() {
  leave_gathering();
  policy_.forget_all();
  auto meeting = setup_.next_meeting(policy_.restarts());
  if (!meeting) return fail(setup_.self, -1, {1, meeting.error().message()});
  meeting_ = *std::move(meeting);
  for (int node = 0; node < setup_.shape.node_count; ++node) {
    nodes_[at(node)].knows_absent = false;
    if (!nodes_[at(node)].is_here) continue;
    push(node, {.kind = Order::Kind::kStartAll, .meeting = meeting_});
    for (int i = 0; i < setup_.shape.local_size; ++i) {
      policy_.on_start(setup_.shape.first_rank(node) + i, false);
    }
  }
}

// Those of a node without a launcher wait for it.
void JobDecisions::start_due() {
  if (has_failed_ && !setup_.keep_going) return;
  meeting_.restarts = policy_.restarts();
  const auto can_start = [this](int rank) { return nodes_[at(node_of(rank))].is_here; };
  for (const int rank : policy_.due_ranks(can_start)) {
    policy_.on_start(rank, true);
    push(node_of(rank), {.kind = Order::Kind::kStart, .rank = rank, .meeting = meeting_});
  }
}

// Those that wait then were started again too late: nobody is left whom they could rejoin.
void JobDecisions::look_for_end(TimePoint now) {
  const bool may_end = !is_over_ && policy_.only_waiting_run();
  if (!may_end) {
    over_at_ = kNever;
    return;
  }
  if (over_at_ == kNever) over_at_ = now + kLastWaitTime;
  if (policy_.any_runs() && now < over_at_) return;
  over_at_ = kNever;
  is_over_ = true;
  push_to_all({.kind = Order::Kind::kOver});
}

std::optional<JobDecisions::Addressed> JobDecisions::next_order() {
  if (orders_.empty()) return std::nullopt;
  Addressed next = std::move(orders_.front());
  orders_.pop_front();
  return next;
}

}  // namespace unisono::run
