// Ranks that only meet: as threads of this process, or as processes that run this binary again
// with a role. Used by the rendezvous tests; single-threaded apart from what it starts.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "rendezvous/client/arbiter_client.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/sockets/control_stream.h"
#include "rendezvous/sockets/sockets.h"
#include "tests/support/eventually.h"

namespace unisono::rendezvous {

/// Generous: what is awaited happens within milliseconds, on a loaded machine within seconds.
inline constexpr Duration kPatience = std::chrono::seconds(30);

Member test_member(Rank rank);
/// Abstract, with a name of its own.
RendezvousPoint abstract_point();
/// Loopback, at a port that was free a moment ago.
RendezvousPoint tcp_point();
/// A file of its own in a new directory.
RendezvousPoint file_point();
JobKey test_key();

struct Outcome {
  std::unique_ptr<ArbiterClient> client;
  Status status;
};

/// Joins `ranks.size()` ranks as threads, each with what `prepare` made of its arguments, and
/// returns when all have an answer.
struct Candidate {
  RendezvousPoint point;
  int size = 0;
  Member member;
  TimePoint deadline;
};
std::vector<Outcome> meet(std::vector<Candidate> candidates);
/// All ranks of a world of `size` at `point`.
std::vector<Candidate> world_of(const RendezvousPoint& point, int size,
                                Duration deadline = kPatience);

/// All have joined and hold the same table.
void expect_one_world(const std::vector<Outcome>& outcomes);
void leave_all(std::vector<Outcome>* outcomes);

/// Polls until a decision comes; fails the test and returns an empty one after kPatience.
FailureDecision await_decision(ArbiterClient* client);
using test::eventually;

void say(ControlStream* stream, std::string bytes);
/// The type of the next message; nothing where the other side hung up.
std::optional<MessageType> hear(ControlStream* stream);
/// The next connection of a listener on a UNIX socket.
ControlStream accept_at(const Listener& listener);
/// A rank of a world of `size` that says what it likes, after its join.
ControlStream rank_at(const RendezvousPoint& point, Rank rank, int size);

/// What rank 0 of a world of two hears when rank 1 says this once both have met.
FailureDecision decision_when_rank_one_says(const std::string& said);

/// A rank in a process of its own. It prints "joined" or the error, then "decision <rank> <text>"
/// for what the arbiter says, until its standard input closes; then it leaves.
class RankProcess {
 public:
  /// `manner`: "stays", or "exits" (without goodbye once its input closes), or "forks" (has a child
  /// that outlives it and holds all its descriptors), or "leaves" (says goodbye at once, lives on),
  /// or "apart" (is on a host of its own), or "reports" (waits in vain for rank 3, and says so when
  /// it has heard of a failure).
  RankProcess(const std::string& url, Rank rank, int size, const std::string& manner = "stays");
  ~RankProcess();
  RankProcess(RankProcess&&) = default;

  /// The next line it prints; empty after kPatience or at its end.
  std::string line();
  void kill();
  /// It does nothing any more, and lives.
  void stop();
  /// Closes its input and returns its exit status, -1 when killed.
  int finish();

 private:
  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
  std::string buffer_;
};

/// The role of such a process; called by main().
int run_as_rank(int argc, char** argv);

}  // namespace unisono::rendezvous
