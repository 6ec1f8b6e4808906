// What is heard of ranks that the arbiter does not hear any more, where not all hosts lose each
// other: control connections alone, over a network of which pairs of hosts are cut.
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/messages/arbiter_connection.h"
#include "tests/sim/control_plane.h"

namespace unisono::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kSilence{3000};

/// Ranks 0 and 1, 2 and 3, ... are on one host each; rank 0 holds the arbiter.
class Job {
 public:
  explicit Job(int ranks)
      : plane_({.ranks = ranks,
                .silence = kSilence,
                .wake = [](Rank) {},
                .runs_at =
                    [this](Rank rank) { return stopped_.contains(rank) ? kNever : TimePoint{}; },
                .passes_at =
                    [this](Rank from, Rank to) {
                      const std::pair<int, int> hosts =
                          std::minmax(from / kRanksOfHost, to / kRanksOfHost);
                      return cut_.contains(hosts) ? kNever : TimePoint{};
                    }},
               schedule_) {}

  void run_for(Duration time) {
    const TimePoint end = schedule_.now() + time;
    while (schedule_.now() < end && schedule_.step()) continue;
  }
  void cut(int host, int other) { cut_.insert(std::minmax(host, other)); }
  void stop(Rank rank) { stopped_.insert(rank); }
  /// What a rank hears of another one.
  std::string told(Rank to, Rank of) {
    const rendezvous::ArbiterNews news = plane_.arbiter_client(to).take_news();
    for (const FailureDecision& decision : news.decisions) {
      if (decision.failed_rank == of) return decision.message;
    }
    return "";
  }

 private:
  std::set<std::pair<int, int>> cut_;
  std::set<Rank> stopped_;
  Schedule schedule_;
  ControlPlane plane_;
};

TEST(Witnesses, TellALinkThatIsDownFromAHostThatIs) {
  for (const bool is_host : {false, true}) {
    Job job(6);
    job.run_for(kSilence);
    job.cut(0, 2);
    if (is_host) job.cut(1, 2);
    job.run_for(2 * kSilence);
    const std::string told = job.told(3, 4);
    EXPECT_THAT(told,
                AllOf(HasSubstr("is silent"), HasSubstr("nor is any other rank of its host")));
    EXPECT_THAT(told,
                HasSubstr(is_host ? "; nor does rank 2 on host host1 reach it by UDP: its host is "
                                    "down, cut off, or stopped as a whole"
                                  : "; rank 2 on host host1 reaches it: its process lives"));
  }
}

TEST(Witnesses, DoNotReachProcessesThatAreStopped) {
  Job job(6);
  job.run_for(kSilence);
  for (const Rank rank : {4, 5}) job.stop(rank);
  job.run_for(2 * kSilence);
  EXPECT_THAT(job.told(3, 4), HasSubstr("; nor does rank 2 on host host1 reach it"));
}

TEST(Witnesses, OfTwoHostsAreHeardBoth) {
  Job job(8);
  job.run_for(kSilence);
  job.cut(0, 3);
  job.cut(1, 3);
  job.run_for(2 * kSilence);
  EXPECT_THAT(job.told(4, 6),
              HasSubstr("; rank 4 on host host2 reaches it, and rank 2 on host host1 does not"));
}

// Who is beside the arbiter sees what that sees.
TEST(Witnesses, AreNoneWhereAllOthersAreBesideTheArbiter) {
  Job job(4);
  job.run_for(kSilence);
  job.cut(0, 1);
  job.run_for(2 * kSilence);
  const std::string told = job.told(1, 2);
  EXPECT_THAT(told, HasSubstr("nor is any other rank of its host: that is down"));
}

}  // namespace
}  // namespace unisono::sim
