// How the processes of a new job meet: the production's Rendezvous says who has come and why it
// fails; around it is what joiner.cc, introduction.cc and arbiter_loop.cc do with sockets.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/sessions/rendezvous.h"
#include "tests/sim/program.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"
#include "unisono/rendezvous.h"

namespace unisono::sim {

class Meetings {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::function<void(int process)> wake;
    /// As ControlPlane's.
    std::function<TimePoint(int process)> runs_at;
    /// As ControlPlane's, of processes.
    std::function<TimePoint(int from, int to)> passes_at;
    /// All have come, these processes by rank, to `meeting`.
    std::function<void(int meeting, const std::vector<int>& processes)> on_complete;
    /// A rank of the new job hangs up that has not heard of it.
    std::function<void(int meeting, Rank rank)> on_given_up;
  };
  Meetings(Options options, Schedule& schedule)
      : options_(std::move(options)), schedule_(schedule), random_(options_.seed) {}

  /// Who comes, and where.
  struct Guest {
    int process;
    Program& program;
    Store& store;
    std::string place;
    Rank rank;
    int size;
    std::function<Status()> go_on;
  };
  /// As ArbiterClient::join() at a store. The number of the meeting.
  Result<int> join(const Guest& guest, TimePoint deadline);
  void end_process(int process);

 private:
  /// A guest's connection to rank 0's process.
  struct Line {
    int process;
    int meeting;
    Rank rank;
    bool is_open_at_guest = true, is_seated = false;
    bool is_cut_off = false;  // when the guest hung up
    TimePoint last_up{}, last_down{};
    enum class Heard : std::uint8_t { kNothing, kWelcome, kRefusal, kClosed } heard{};
    Status refusal;
  };
  /// Rank 0's side.
  struct Gathering {
    int process;
    rendezvous::Rendezvous rendezvous;
    TimePoint deadline;
    std::optional<Status> outcome{};  // ok: all have come
    bool listens = true;
    std::map<Rank, int> processes{};
  };

  Result<int> host(const Guest& guest, TimePoint deadline);
  Result<int> attend(const Guest& guest, TimePoint deadline);
  /// What one try came to, and whether it was the last.
  struct Attempt {
    Status why;
    bool is_final = false;
    bool reached = false;
  };
  Attempt converse(const Guest& guest, int line, TimePoint deadline);
  int connect(const Guest& guest, int meeting, int size);
  void hang_up(int line);
  void depart(int line);
  /// When what is sent now gets there, behind `last` on its line; kNever: not.
  TimePoint arrival(int from, int to, Duration takes, TimePoint* last);
  void up(int line, std::function<void()> what);
  void down(int line, Line::Heard heard, const Status& refusal = Status());
  void at_arbiter(int meeting, TimePoint when, std::function<void()> what);
  void admit(int line, int size);
  void on_timers(int meeting);
  void end(int meeting, const Status& outcome);
  Line& at(int line) { return lines_[static_cast<std::size_t>(line)]; }
  Gathering& gathering(int meeting) { return gatherings_[static_cast<std::size_t>(meeting)]; }
  Duration delay();

  const Options options_;
  Schedule& schedule_;
  Random random_;
  std::deque<Line> lines_;
  std::deque<Gathering> gatherings_;
};

}  // namespace unisono::sim
