// What a supervisor tells of its own ranks, and what it is told to do with them by whoever decides
// for the ranks of all nodes: this launcher, or that of node 0. One thread; nothing here blocks.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tools/run/restart_policy.h"

namespace unisono::run {

struct Failure {
  int exit_status = 1;
  std::string what;
};

/// What the launchers of a job have to agree on.
struct JobShape {
  int node_count = 1;
  int local_size = 1;    ///< ranks of each node
  int max_restarts = 0;  ///< starts after failures, all ranks together
  Restart restart = Restart::kFailed;

  int first_rank(int node) const { return node * local_size; }
  bool has_rank(int node, int rank) const {
    return rank >= first_rank(node) && rank < first_rank(node + 1);
  }
};

/// Where the ranks meet: another place each time that all are started.
struct MeetingPoint {
  int restarts = 0;  ///< of the job so far
  int port = 0;      ///< MASTER_PORT
  std::string run_id;
};

struct Event {
  enum class Kind : std::uint8_t {
    kExited,       ///< `rank`, and not by a failure: nobody is to be started for it
    kFailed,       ///< `rank` has exited, and how: whoever decides says what follows
    kLastFailure,  ///< the job has failed, and this launcher has begun to end it
    kEnding,       ///< this launcher was told to end, and its ranks with it
    kGone,         ///< nothing is left of the ranks that an order has ended
  };
  Kind kind = Kind::kExited;
  int rank = -1;
  Failure failure{};
};

struct Order {
  enum class Kind : std::uint8_t {
    kSay,       ///< `text`
    kClear,     ///< `text`; what is left of `rank` is in the way of its successor
    kStart,     ///< `rank`, which rejoins those that run, at `meeting`
    kEndAll,    ///< `text`; then Event::kGone. `failure` is the job's unless all start again
    kStartAll,  ///< anew, at `meeting`; what was before is forgotten
    kFail,      ///< the job has failed of `failure`, or has before
    kOver,      ///< nobody is left that has anything to do
    kAlone,     ///< launcher of node 0, to another one: decides nothing any more, `text` says why
  };
  Kind kind = Kind::kSay;
  int rank = -1;  ///< also that of a kSay or kFail that answers its kFailed
  std::string text{};
  Failure failure{};
  MeetingPoint meeting{};
};

class JobControl {
 public:
  virtual ~JobControl() = default;

  /// next_order() may have something right after it.
  virtual void tell(const Event& event) = 0;
  /// What is to be done next. Asked until there is nothing.
  virtual std::optional<Order> next_order() = 0;

  // Of the supervisor's loop.
  virtual void list_awaited(std::vector<pollfd>* awaited) const = 0;
  virtual TimePoint next_due() const = 0;
  /// `happened`: the descriptors that are ready, of those awaited and perhaps of others. What is
  /// due, too: only here ranks are found to be started, and the job to be over.
  virtual void serve(std::span<const pollfd> happened) = 0;
};

inline bool has_happened(std::span<const pollfd> happened, int fd) {
  return std::any_of(happened.begin(), happened.end(),
                     [fd](const pollfd& each) { return each.fd == fd; });
}

}  // namespace unisono::run
