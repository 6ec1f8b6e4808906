#include "tools/run/supervisor.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "tools/common/sizes.h"
#include "tools/common/terminal.h"
#include "tools/run/guard.h"
#include "tools/run/output_queue.h"
#include "tools/run/process_group.h"
#include "tools/run/rank_stream.h"
#include "tools/run/signals.h"
#include "tools/run/stdin_relay.h"

namespace unisono::run {
namespace {

// Helpers of a rank that ended well (Python's resource tracker is one) end a moment after it.
constexpr auto kLingerTime = std::chrono::seconds(1);
// A process leaves its group by setsid without any event; only looking shows it.
constexpr auto kGroupCheck = std::chrono::milliseconds(50);
// A reader that has stopped must not keep alive a launcher that was told to end.
constexpr auto kLastOutputTime = std::chrono::seconds(1);
// How often to look whether the launcher has come back to the foreground of its terminal.
constexpr auto kForegroundCheck = std::chrono::milliseconds(500);

enum class Phase {
  kRunning,
  kReporting,    ///< a rank failed; the others may say so and end
  kTerminating,  ///< SIGTERM sent
  kKilling,      ///< SIGKILL sent
  kGivenUp,      ///< processes that not even SIGKILL ends
};

struct RankProcess {
  int rank;
  int local_rank;
  pid_t leader;
  bool leader_runs = true;
  bool ended_well = false;      ///< with status 0
  bool was_ended_here = false;  ///< after SIGTERM to all that were left
  bool group_exists = true;     ///< the leader or anything it started and left in its group
  RankStream out;
  RankStream err;
};

std::string list_of(const std::vector<std::string>& names, std::size_t max) {
  const std::size_t told = std::min(names.size(), max);
  const std::string more =
      told < names.size() ? fmt::format(" and {} more", names.size() - told) : "";
  return fmt::format("{}{}", fmt::join(std::span(names).first(told), ", "), more);
}

class Supervisor {
 public:
  Supervisor(const JobSpec& job, JobControl& control, Signals& signals, Guard guard)
      : job_(job), control_(control), signals_(signals), guard_(std::move(guard)) {}

  int run();

 private:
  void settle(std::span<const pollfd> happened = {});
  void follow(const Order& order);
  void start_all(const MeetingPoint& meeting);
  void start_again(int rank, const MeetingPoint& meeting);
  std::optional<Failure> start_rank(const RankSpec& spec, const MeetingPoint& meeting,
                                    bool rejoins);
  void clear(int rank);
  void end_all(const Failure& failure);
  bool is_over();
  bool ranks_are_done() const;
  bool group_left() const;
  bool leader_left() const;
  void wait_for_events();
  int poll_timeout_ms() const;
  void on_own_stream(int fd);
  void write_output();
  void flush_output();
  void give_up_output();
  void on_signal(int signal);
  void on_interrupt();
  void reap();
  void on_rank_end(RankProcess& process, int wait_status);
  void on_own_failure(Failure failure);
  void on_failure(Failure failure);
  void repeat_first_failure();
  void tell_verdict();
  void tell_absent();
  void look_for_empty_groups();
  void advance_phase();
  void enter(Phase phase, TimePoint until);
  void end_groups(int signal, Phase next, Duration wait);
  void send_to_groups(int signal);
  std::string ranks_left() const;
  void say(const std::string& message);

  const JobSpec& job_;
  JobControl& control_;
  Signals& signals_;
  Guard guard_;
  OutputQueue queue_;
  StdinRelay stdin_;
  std::vector<RankProcess> processes_;
  Phase phase_ = Phase::kRunning;
  TimePoint deadline_ = kNever;
  std::optional<Failure> failure_;
  int failures_told_ = 0;
  bool all_restart_ = false;   // are to, and failure_ is no failure of the job then
  bool all_end_here_ = false;  // for that
  bool is_told_over_ = false;
  int interrupts_ = 0;
  bool told_to_end_ = false;
  std::set<int> forwarded_;
};

int Supervisor::run() {
  if (job_.reads_input) {
    if (const Status started = stdin_.start(); !started.ok()) say(started.message());
  }
  settle();
  while (!is_over()) {
    wait_for_events();
    advance_phase();
  }
  repeat_first_failure();
  if (failure_) tell_verdict();
  flush_output();
  guard_.finish();
  return failure_ ? failure_->exit_status : 0;
}

// Until nothing follows any more from what was done.
void Supervisor::settle(std::span<const pollfd> happened) {
  control_.serve(happened);
  while (const auto order = control_.next_order()) {
    follow(*order);
    control_.serve({});
  }
}

void Supervisor::follow(const Order& order) {
  if (!order.text.empty()) say(order.text);
  switch (order.kind) {
    case Order::Kind::kClear:
      return clear(order.rank);
    case Order::Kind::kStart:
      return start_again(order.rank, order.meeting);
    case Order::Kind::kEndAll:
      return end_all(order.failure);
    case Order::Kind::kStartAll:
      return start_all(order.meeting);
    case Order::Kind::kFail:
      return on_failure(order.failure);
    case Order::Kind::kOver:
      is_told_over_ = true;
      return;
    case Order::Kind::kSay:
    case Order::Kind::kAlone:
      return;
  }
}

void Supervisor::start_all(const MeetingPoint& meeting) {
  enter(Phase::kRunning, kNever);
  tell_verdict();
  processes_.clear();
  failure_.reset();
  all_restart_ = false;
  failures_told_ = 0;
  for (const RankSpec& spec : job_.ranks_at(meeting, false)) {
    if (!failure_) failure_ = start_rank(spec, meeting, false);
    if (failure_) control_.tell({.kind = Event::Kind::kExited, .rank = spec.rank});
  }
  if (!failure_) return;
  say(failure_->what);
  // What was started has no job to do without the rest, and nothing to report.
  if (!processes_.empty()) end_groups(SIGTERM, Phase::kTerminating, job_.grace_time);
  control_.tell({.kind = Event::Kind::kLastFailure, .failure = *failure_});
}

// One that cannot be started ends the job.
void Supervisor::start_again(int rank, const MeetingPoint& meeting) {
  std::optional<Failure> failure;
  if (phase_ == Phase::kRunning) {
    const std::vector<RankSpec> ranks = job_.ranks_at(meeting, true);
    const auto spec = std::find_if(ranks.begin(), ranks.end(),
                                   [&](const RankSpec& each) { return each.rank == rank; });
    failure = start_rank(*spec, meeting, true);
    if (!failure) return;
  }
  control_.tell({.kind = Event::Kind::kExited, .rank = rank});
  if (failure) on_own_failure(*std::move(failure));
}

// Nothing, or why it could not be started.
std::optional<Failure> Supervisor::start_rank(const RankSpec& spec, const MeetingPoint& meeting,
                                              bool rejoins) {
  const bool has_stdin = spec.rank == 0 && meeting.restarts == 0;
  StartRequest request{job_.command, spec.environment, has_stdin ? stdin_.rank_fd() : -1, nullptr};
  request.before_exec = [&] {
    if (job_.prepare != nullptr) job_.prepare(job_.prepare_context, spec.cores);
    if (job_.records != nullptr) job_.records->hand_over(spec.local_rank);
  };
  if (job_.records != nullptr) job_.records->on_start(spec.local_rank, rejoins);
  auto started = start_group(request, guard_, signals_);
  if (has_stdin) stdin_.rank_started();
  if (auto* failure = std::get_if<StartFailure>(&started)) {
    return Failure{failure->exit_status,
                   fmt::format("rank {}{}: {}", spec.rank, job_.place, failure->message)};
  }
  auto& group = std::get<ProcessGroup>(started);
  const auto stream = [&](UniqueFd pipe, int fd) {
    const std::string prefix =
        job_.prefix ? rank_prefix(spec.rank, job_.world_size, tools::wants_colour(fd)) : "";
    // Somebody is to answer what it asks.
    const bool prompts = has_stdin && !job_.prefix && ::isatty(fd) != 0;
    return RankStream(std::move(pipe), prefix, fd, prompts);
  };
  processes_.push_back(RankProcess{
      .rank = spec.rank,
      .local_rank = spec.local_rank,
      .leader = group.leader,
      .out = stream(std::move(group.out), STDOUT_FILENO),
      .err = stream(std::move(group.err), STDERR_FILENO),
  });
  return std::nullopt;
}

// What is left of it would meet its successor, whose its record is soon.
void Supervisor::clear(int rank) {
  tell_verdict();
  for (const RankProcess& process : processes_) {
    if (process.rank == rank && process.group_exists) signal_group(process.leader, SIGKILL);
  }
}

void Supervisor::end_all(const Failure& failure) {
  failure_ = failure;
  all_restart_ = all_end_here_ = true;
  look_for_empty_groups();
  if (group_left()) end_groups(SIGTERM, Phase::kTerminating, job_.grace_time);
}

// Nothing is left of its ranks, and none of them is started again.
bool Supervisor::is_over() {
  if (!ranks_are_done()) return false;
  if (phase_ == Phase::kGivenUp) return true;
  if (std::exchange(all_end_here_, false)) {
    control_.tell({.kind = Event::Kind::kGone});
    settle();
  }
  return is_told_over_ && ranks_are_done();
}

bool Supervisor::ranks_are_done() const {
  const auto is_done = [&](const RankProcess& process) {
    const bool gone = !process.group_exists || phase_ == Phase::kGivenUp;
    return gone && !process.out.is_open() && !process.err.is_open();
  };
  return std::all_of(processes_.begin(), processes_.end(), is_done);
}

bool Supervisor::group_left() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const RankProcess& process) { return process.group_exists; });
}

bool Supervisor::leader_left() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const RankProcess& process) { return process.leader_runs; });
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
  if (!queue_.empty()) polled.push_back({queue_.poll_fd(), POLLOUT, 0});
  if (stdin_.wants_input()) polled.push_back({STDIN_FILENO, POLLIN, 0});
  if (stdin_.wants_output()) polled.push_back({stdin_.pipe_fd(), POLLOUT, 0});
  const std::size_t first_awaited = polled.size();
  control_.list_awaited(&polled);
  const std::size_t first_stream = polled.size();
  std::vector<RankStream*> streams;
  for (RankProcess& process : processes_) {
    if (queue_.full()) break;  // The ranks wait until our reader has caught up.
    for (RankStream* stream : {&process.out, &process.err}) {
      if (!stream->is_open()) continue;
      polled.push_back({stream->fd(), POLLIN, 0});
      streams.push_back(stream);
    }
  }
  if (::poll(polled.data(), polled.size(), poll_timeout_ms()) <= 0) return settle();

  // Lines before signals: what a rank wrote before it ended is queued before its end is told.
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (polled[first_stream + i].revents != 0) streams[i]->read_some(queue_);
  }
  for (std::size_t i = 1; i < first_awaited; ++i) {
    if (polled[i].revents != 0) on_own_stream(polled[i].fd);
  }
  if (polled[0].revents != 0) {
    while (const int signal = signals_.next()) on_signal(signal);
  }
  std::erase_if(polled, [](const pollfd& each) { return each.revents == 0; });
  settle(polled);
}

int Supervisor::poll_timeout_ms() const {
  TimePoint until = std::min(deadline_, control_.next_due());
  if (stdin_.active()) until = std::min(until, Clock::now() + kForegroundCheck);
  const bool orphans = std::any_of(
      processes_.begin(), processes_.end(),
      [](const RankProcess& process) { return process.group_exists && !process.leader_runs; });
  if (orphans) until = std::min(until, Clock::now() + kGroupCheck);
  if (until == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 60'000));
}

void Supervisor::on_own_stream(int fd) {
  if (fd == STDIN_FILENO) {
    stdin_.read_some();
  } else if (stdin_.wants_output() && fd == stdin_.pipe_fd()) {
    stdin_.write_some();
  } else if (!queue_.empty()) {
    write_output();
  }
}

void Supervisor::write_output() {
  const char* stream = queue_.target() == STDOUT_FILENO ? "standard output" : "standard error";
  const int error = queue_.write_some();
  // A reader that has left is told to the ranks, by the SIGPIPE that they would get from it.
  if (error == 0 || error == EPIPE) return;
  on_own_failure(
      {1, fmt::format("cannot write {}{}: {}", stream, job_.place, std::strerror(error))});
}

// Without a signal to end, a reader that pauses (a pager) has all the time it wants.
void Supervisor::flush_output() {
  TimePoint progress = Clock::now();
  while (!queue_.empty()) {
    const bool at_once = interrupts_ > 1;
    deadline_ = at_once ? progress : told_to_end_ ? progress + kLastOutputTime : kNever;
    if (deadline_ <= Clock::now()) return give_up_output();
    const std::size_t before = queue_.bytes();
    wait_for_events();
    if (queue_.bytes() != before) progress = Clock::now();
  }
}

void Supervisor::give_up_output() {
  const std::size_t bytes = queue_.give_up();
  if (bytes == 0) return;
  if (!failure_) failure_ = Failure{1, "output was dropped"};
  say(fmt::format("nobody read the last {} of output; dropped",
                  tools::format_bytes_rounded(static_cast<double>(bytes))));
  queue_.give_up();
}

void Supervisor::on_signal(int signal) {
  if (signal == SIGCHLD) return reap();
  send_to_groups(signal);
  forwarded_.insert(signal);
  if (!tells_to_end(signal)) return;
  told_to_end_ = true;
  if (!group_left() && !is_told_over_ && (!failure_ || all_restart_)) {
    failure_ = Failure{128 + signal, "the launcher was told to end before the job was over"};
  }
  control_.tell({.kind = Event::Kind::kEnding});
  if (signal == SIGINT) return on_interrupt();
  // Nobody is there to send it a second time, so ranks that ignore it are ended as those are that
  // outlive a failure.
  if (signal == SIGQUIT || phase_ != Phase::kRunning || !group_left()) return;
  enter(Phase::kReporting, Clock::now() + job_.report_time);
}

void Supervisor::on_interrupt() {
  if (++interrupts_ == 1) {
    if (group_left()) say("interrupt sent to all ranks; press Ctrl-C again to kill them");
    return;
  }
  if (phase_ >= Phase::kKilling || !group_left()) return;
  if (!failure_) failure_ = Failure{128 + SIGINT, "a second interrupt"};
  end_groups(SIGKILL, Phase::kKilling, kKillTime);
}

void Supervisor::reap() {
  int wait_status = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &wait_status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    // Others are orphans that ranks left behind; as their subreaper we only bury them.
    for (RankProcess& process : processes_) {
      if (process.leader == pid && process.leader_runs) on_rank_end(process, wait_status);
    }
    if (pid == guard_.pid()) {
      say("the guard process was killed: if the launcher is killed too, ranks may be left behind");
    }
  }
  settle();
}

void Supervisor::on_rank_end(RankProcess& process, int wait_status) {
  process.leader_runs = false;
  const int status = exit_status_of(wait_status);
  process.ended_well = status == 0;
  // Nobody has ended one that exits with 0, whatever it left open.
  process.was_ended_here = phase_ > Phase::kReporting || status == 0;
  Event event{.kind = Event::Kind::kExited, .rank = process.rank};
  // Ranks end after SIGTERM because they were told to. One line is enough where all end of the
  // signal that all got.
  const bool is_told =
      failure_ && WIFSIGNALED(wait_status) && forwarded_.contains(WTERMSIG(wait_status));
  if (status == 0 || phase_ > Phase::kReporting || is_told) return control_.tell(event);
  process.out.read_available(queue_);
  process.err.read_available(queue_);
  event.failure = {status, fmt::format("rank {}{} (pid {}) {}", process.rank, job_.place,
                                       process.leader, how_it_ended(wait_status))};
  if (phase_ == Phase::kRunning) event.kind = Event::Kind::kFailed;
  control_.tell(event);
  // None of these starts a rank.
  while (const auto order = control_.next_order()) follow(*order);
  if (event.kind == Event::Kind::kExited) on_failure(std::move(event.failure));
}

// Of the launcher, or of a rank that it cannot start. Nobody starts again then. Where the reason is
// a signal to end, that is what the others are told: their ranks may go on.
void Supervisor::on_own_failure(Failure failure) {
  if ((!failure_ || all_restart_) && signals_.pending_end() == 0) {
    control_.tell({.kind = Event::Kind::kLastFailure, .failure = failure});
  }
  on_failure(std::move(failure));
}

void Supervisor::on_failure(Failure failure) {
  const bool first = !failure_;
  const bool ends_now = first && !job_.keep_going && phase_ <= Phase::kReporting;
  if (ends_now) enter(Phase::kReporting, Clock::now() + job_.report_time);
  say(ends_now && leader_left()
          ? fmt::format("{}; the other ranks have {} to report and end (--keep-going: they go on)",
                        failure.what, tools::format_duration(job_.report_time))
          : failure.what);
  ++failures_told_;
  all_restart_ = false;
  if (first) failure_ = std::move(failure);
}

// The others' reports have scrolled the cause away.
void Supervisor::repeat_first_failure() {
  if (failure_ && failures_told_ > 1) say(fmt::format("first failure: {}", failure_->what));
}

// The ranks themselves may have had nothing to say, as those that were ended. Where the launcher
// was told to end, no rank is to blame.
void Supervisor::tell_verdict() {
  if (told_to_end_ || processes_.empty() || job_.records == nullptr) return;
  std::vector<recorder::Life> lives(job_.local_size, recorder::Life::kUnknown);
  // The last process of a rank is the one whose record is left.
  for (const RankProcess& process : processes_) {
    lives[static_cast<std::size_t>(process.local_rank)] =
        process.leader_runs      ? recorder::Life::kRuns
        : process.was_ended_here ? recorder::Life::kUnknown
                                 : recorder::Life::kGone;
  }
  const std::string verdict = job_.records->verdict(lives);
  if (!verdict.empty()) return say("blame: " + verdict);
  tell_absent();
}

// No record tells where ranks have not met, as when the others wait for one whose end looks well.
// One whose command closes descriptors has a record of its own, and none here.
void Supervisor::tell_absent() {
  std::vector<std::string> names;
  for (const RankProcess& process : processes_) {
    if (!process.ended_well || !job_.records->has_joined_none(process.local_rank)) continue;
    names.push_back(fmt::format("rank {} (pid {})", process.rank, process.leader));
  }
  if (names.empty()) return;
  say(list_of(names, 4) +
      " ended with status 0 and left no record of a job; the others may have waited for " +
      (names.size() > 1 ? "them" : "it"));
}

void Supervisor::look_for_empty_groups() {
  for (RankProcess& process : processes_) {
    // While the leader is not reaped its number is taken, so the group cannot be another's.
    if (process.leader_runs || !process.group_exists) continue;
    if (signal_group(process.leader, 0)) continue;
    process.group_exists = false;
    guard_.forget(process.leader);
    process.out.drain(queue_);
    process.err.drain(queue_);
  }
}

void Supervisor::advance_phase() {
  look_for_empty_groups();
  if (!group_left()) return;
  // All have followed the signal to end, and ended well.
  if (phase_ == Phase::kReporting && !failure_ && !leader_left()) enter(Phase::kRunning, kNever);
  // All ranks have ended by themselves; what they left running has no job any more.
  if (phase_ == Phase::kRunning && is_told_over_ && deadline_ == kNever) {
    deadline_ = Clock::now() + (leader_left() ? Duration() : kLingerTime);
  }
  if (Clock::now() < deadline_) return;
  if (phase_ == Phase::kRunning) {
    say(leader_left() ? "the others have ended before the ranks that were started again rejoined"
                      : "the ranks have ended, but left processes running");
    end_groups(SIGTERM, Phase::kTerminating, job_.grace_time);
  } else if (phase_ == Phase::kReporting) {
    if (!failure_) failure_ = Failure{128 + SIGTERM, "ranks outlived the signal to end"};
    end_groups(SIGTERM, Phase::kTerminating, job_.grace_time);
  } else if (phase_ == Phase::kTerminating) {
    end_groups(SIGKILL, Phase::kKilling, kKillTime);
  } else if (phase_ == Phase::kKilling) {
    say(fmt::format("not even SIGKILL ended what is left of {}; leaving it", ranks_left()));
    enter(Phase::kGivenUp, kNever);
    for (RankProcess& process : processes_) {
      process.out.drain(queue_);
      process.err.drain(queue_);
    }
  }
}

void Supervisor::enter(Phase phase, TimePoint until) {
  phase_ = phase;
  deadline_ = until;
}

void Supervisor::end_groups(int signal, Phase next, Duration wait) {
  say(fmt::format("sending {} to {}", signal_name(signal), ranks_left()));
  enter(next, Clock::now() + wait);
  send_to_groups(signal);
  // A stopped process acts on SIGTERM only when it runs again.
  if (signal != SIGKILL) send_to_groups(SIGCONT);
}

void Supervisor::send_to_groups(int signal) {
  for (const RankProcess& process : processes_) {
    if (process.group_exists) signal_group(process.leader, signal);
  }
}

std::string Supervisor::ranks_left() const {
  std::vector<std::string> names;
  for (const RankProcess& process : processes_) {
    if (process.group_exists) names.push_back(std::to_string(process.rank));
  }
  return (names.size() == 1 ? "rank " : "ranks ") + list_of(names, 16);
}

void Supervisor::say(const std::string& message) {
  const bool coloured = tools::wants_colour(STDERR_FILENO);
  queue_.push(STDERR_FILENO,
              tools::paint("unisono run: " + message, tools::Colour::kBold, coloured) + "\n");
}

}  // namespace

Result<int> supervise(const JobSpec& job, JobControl& control) {
  Signals signals;
  UNISONO_TRY(signals.start());
  // Orphans of ranks become our children: their end is an event, and no zombie keeps a group alive
  // where process 1 does not reap.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  UNISONO_ASSIGN(Guard guard, Guard::start());
  return Supervisor(job, control, signals, std::move(guard)).run();
}

}  // namespace unisono::run
