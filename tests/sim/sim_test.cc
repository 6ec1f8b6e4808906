// That the simulation is what it says: the same seed gives the same run, the small cases that it
// ends with are small, and what it is to notice it notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "tests/sim/search.h"

namespace unisono::sim {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Simulation, RunsASeedTheSameWayEachTime) {
  for (const bool shares_memory : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Case c = make_case(seed, {.shares_memory = shares_memory});
      const Outcome once = run(c), again = run(c);
      EXPECT_EQ(once.steps, again.steps) << "seed " << seed;
      EXPECT_EQ(once.took, again.took) << "seed " << seed;
      EXPECT_EQ(once.calls_done, again.calls_done) << "seed " << seed;
    }
  }
}

// What a rank has stored and others do not see yet is none of the next job's.
TEST(Simulation, RunsASeedTheSameWayAfterAnyOther) {
  const Limits limits{.shares_memory = true};
  const Case c = make_case(12897, limits);
  const Outcome once = run(c);
  run(make_case(12894, limits));
  const Outcome again = run(c);
  EXPECT_EQ(once.steps, again.steps);
  EXPECT_EQ(once.took, again.took);
}

// Of ranks that leave while the network is down or slow: a goodbye that is late, and what was sent
// to one that has left before it had heard of the link.
TEST(Simulation, EndsWithoutFailureWhereRanksLeaveASlowNetwork) {
  for (const std::uint64_t seed : {4015247, 3015353, 2001268}) {
    const Outcome outcome = run(make_case(seed));
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(outcome.ranks_failed, 0) << "seed " << seed;
  }
}

TEST(Simulation, MakesEveryKindOfFault) {
  int kinds[kFaultKinds] = {};
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    for (const Fault& fault : make_case(seed).faults) ++kinds[static_cast<int>(fault.kind)];
  }
  EXPECT_GT(*std::min_element(std::begin(kinds), std::end(kinds)), 10);
}

TEST(Simulation, EndsWithoutFailureWhereNothingBreaks) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const Case c =
        make_case(seed, {.ranks_max = 8, .with_faults = false, .shares_memory = seed % 2 == 0});
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty());
    const auto collectives =
        std::count_if(c.operations.begin(), c.operations.end(),
                      [](const Operation& operation) { return operation.is_collective(); });
    if (outcome.parts_made > 0) {
      EXPECT_GT(outcome.calls_done, c.ranks * static_cast<int>(collectives));
    } else {
      EXPECT_EQ(outcome.calls_done, c.ranks * static_cast<int>(collectives));
    }
  }
}

TEST(Simulation, MakesNativeCallsOfEveryKind) {
  std::set<std::pair<Collective, bool>> calls;
  std::set<std::pair<Sharing, AccessPath>> jobs;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Case c = make_case(seed, {.shares_memory = true});
    jobs.insert({c.sharing, c.access});
    for (const Operation& operation : c.operations) {
      if (operation.is_native()) calls.insert({operation.what.collective, operation.blocks});
    }
  }
  EXPECT_THAT(calls, SizeIs(2 * (kCollectiveCount - 2))) << "all but sends and receives";
  EXPECT_THAT(jobs, SizeIs(2 * kAccessPathNames.size()));
}

// The one that is left of a broadcast waits for the root, which did not come.
TEST(Simulation, EndsNativeCallsOfSurvivors) {
  for (const Sharing sharing : {Sharing::kProcesses, Sharing::kThreads}) {
    Case c =
        make_case(7, {.ranks_min = 3, .ranks_max = 3, .with_faults = false, .shares_memory = true});
    Operation call;
    call.what = {.collective = Collective::kBroadcast, .count = 100'000};
    call.what.options.algorithm = "native";
    c.operations = {call, call};
    c.sharing = sharing;
    c.faults = {{.kind = Fault::Kind::kCrash, .rank = 0}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty());
    EXPECT_EQ(outcome.ranks_failed, 2);
    EXPECT_EQ(outcome.calls_done, 2 * 3) << "the meeting and both calls, in the job of two";
  }
}

// Each of a message's two ends is one.
TEST(Simulation, SendsAndReceives) {
  Case c = make_case(7, {.ranks_min = 4, .ranks_max = 4, .with_faults = false});
  c.operations.clear();
  for (const bool blocks : {false, true}) {
    for (const bool from_any : {false, true}) {
      Operation pairs{.exchange = {.shift = 3, .messages = 2}};
      pairs.exchange.blocks = blocks;
      pairs.exchange.from_any = from_any;
      pairs.what.count = 1000;
      Operation to_one = pairs;
      to_one.exchange.pattern = Exchange::Pattern::kToOne;
      c.operations.push_back(pairs);
      c.operations.push_back(to_one);
    }
  }
  const Outcome outcome = run(c);
  EXPECT_THAT(outcome.wrong, IsEmpty());
  EXPECT_EQ(outcome.messages_done, 4 * (4 * 4 + 2 * 6));
}

TEST(Simulation, RefusesAMessageThatIsLongerThanItsRoom) {
  Case c = make_case(7, {.ranks_min = 2, .ranks_max = 2, .with_faults = false});
  Operation short_of_room{.exchange = {.shift = 1, .messages = 1, .more_room = -1}};
  short_of_room.what.count = 2;
  c.operations = {short_of_room, short_of_room};
  const Outcome outcome = run(c);
  EXPECT_THAT(outcome.wrong, IsEmpty());
  EXPECT_EQ(outcome.messages_done, 4) << "the sends";
  EXPECT_EQ(outcome.ranks_failed, 0);
}

// Ranks that split, and call barriers in the whole and in their parts.
Case splitting_case(int ranks, bool takes_turns) {
  Case c = make_case(7, {.ranks_min = ranks, .ranks_max = ranks, .with_faults = false});
  Operation split{.parts = 2, .colors = 5};
  Operation barrier;
  barrier.what.options.algorithm = "dissemination";
  c.operations = {barrier, split, barrier, barrier};
  c.network = Network{.delay_min = std::chrono::microseconds(100),
                      .delay_max = std::chrono::microseconds(400)};
  c.takes_turns = takes_turns;
  return c;
}

TEST(Simulation, CallsInPartsAndInTheWhole) {
  for (const bool takes_turns : {false, true}) {
    const Outcome outcome = run(splitting_case(6, takes_turns));
    EXPECT_THAT(outcome.wrong, IsEmpty());
    EXPECT_GE(outcome.parts_made, 2);
    EXPECT_EQ(outcome.calls_done, 6 * 3 + outcome.parts_made * 3);
  }
}

// Some have made their part when a rank of another one dies, and some have not.
TEST(Simulation, EndsCallsInAPartThatNotAllHaveMade) {
  int deaths_in_a_split = 0;
  for (int step = 0; step < 100; ++step) {
    Case c = splitting_case(4, false);
    c.shrinks = false;
    c.faults = {
        {.kind = Fault::Kind::kCrash, .rank = 3, .at = step * std::chrono::microseconds(50)}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "rank 3 dies in step " << step;
    if (outcome.parts_made > 0 && outcome.parts_made < 3) ++deaths_in_a_split;
  }
  EXPECT_GT(deaths_in_a_split, 0);
}

// Five ranks on three hosts, of which all wait for all.
Case barriers_of_five() {
  Case c = make_case(7, {.ranks_min = 5, .ranks_max = 5, .with_faults = false});
  Operation barrier;
  barrier.what.options.algorithm = "dissemination";
  c.operations = {barrier, barrier, barrier};
  return c;
}

TEST(Simulation, GoesOnWithTheSurvivors) {
  Case c = barriers_of_five();
  for (const Rank dead : {0, 3}) {  // 0 holds the arbiter
    c.faults = {{.kind = Fault::Kind::kCrash, .rank = dead}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty());
    EXPECT_EQ(outcome.ranks_shrunk, 4) << "without rank " << dead;
  }
}

// The host of ranks 0 and 1 is cut off, or one or both of the others.
TEST(Simulation, GoesOnWithTheGreaterPart) {
  Case c = barriers_of_five();
  c.silence = std::chrono::seconds(3);
  for (const auto& [first, last, part] : {std::tuple(0, 1, 3), {4, 4, 4}, {2, 4, 3}}) {
    c.faults = {{.kind = Fault::Kind::kPartition, .rank = first, .peer = last}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty());
    EXPECT_EQ(outcome.ranks_failed, 5);
    EXPECT_EQ(outcome.ranks_shrunk, part) << "ranks " << first << " to " << last;
  }
}

TEST(Simulation, OutlivesANetworkThatIsSoonBack) {
  Case c = barriers_of_five();
  c.silence = std::chrono::seconds(3);
  c.faults = {{.kind = Fault::Kind::kPartition,
               .rank = 0,
               .peer = 1,
               .lasts = std::chrono::milliseconds(1900)}};
  const Outcome outcome = run(c);
  EXPECT_THAT(outcome.wrong, IsEmpty());
  EXPECT_EQ(outcome.ranks_failed, 0);
  EXPECT_GT(outcome.took, std::chrono::milliseconds(1900)) << "it was in its way";
}

// Some ranks have missed others by then, and some have not.
TEST(Simulation, GoesOnWithTheGreaterPartWhereTheNetworkIsBackTooLate) {
  int in_time = 0, ended = 0, went_on = 0;
  constexpr int kSteps = 200;
  for (int step = 0; step < kSteps; ++step) {
    Case c = barriers_of_five();
    c.seed = static_cast<std::uint64_t>(step);
    c.silence = std::chrono::seconds(3);
    c.faults = {{.kind = Fault::Kind::kPartition,
                 .rank = 0,
                 .peer = 1,
                 .lasts = std::chrono::milliseconds(2400 + 10 * step)}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << describe(c);
    in_time += outcome.ranks_failed == 0 ? 1 : 0;
    if (outcome.ranks_failed < c.ranks) continue;
    ++ended;
    went_on += outcome.ranks_shrunk >= 3 ? 1 : 0;
  }
  EXPECT_GT(ended, kSteps / 2);
  EXPECT_EQ(went_on, ended);
  EXPECT_LT(kSteps - in_time - ended, 5) << "some had ended before it was missed";
}

// Which is the first of the greater part that may hold the arbiter, and hears the end of the
// smaller part when it goes on.
TEST(Simulation, GoesOnWithTheGreaterPartWhoseStandbyWasStopped) {
  constexpr int kSteps = 100;
  int went_on = 0;
  for (int step = 0; step < kSteps; ++step) {
    Case c = barriers_of_five();
    c.seed = static_cast<std::uint64_t>(step);
    c.silence = std::chrono::seconds(3);
    c.faults = {{.kind = Fault::Kind::kPartition,
                 .rank = 0,
                 .peer = 1,
                 .lasts = std::chrono::milliseconds(3200 + 4 * step)},
                {.kind = Fault::Kind::kStop,
                 .rank = 2,
                 .at = std::chrono::milliseconds(2000),
                 .lasts = std::chrono::milliseconds(1800)}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << describe(c);
    went_on += outcome.ranks_shrunk >= 3 ? 1 : 0;
  }
  EXPECT_GT(went_on, kSteps / 2);
}

// The lowest standby wakes when the others have just missed the arbiter, and finds that out itself
// a silence later, before deadlines pass. They come to it three times meanwhile.
TEST(Simulation, IsNotCutOffByAStandbyThatWasStopped) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Case c = barriers_of_five();
    c.seed = seed;
    c.silence = std::chrono::seconds(5);
    c.faults = {{.kind = Fault::Kind::kStop, .rank = 0},
                {.kind = Fault::Kind::kStop, .rank = 1, .lasts = std::chrono::milliseconds(4850)}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(outcome.ranks_shrunk, 4) << "seed " << seed;
  }
}

// Both ends hear of it: the others go on without the rank, which does not go on.
TEST(Simulation, GoesOnWithoutARankWhoseControlConnectionIsReset) {
  for (const Rank reset : {2, 3, 4}) {
    for (int step = 0; step < 20; ++step) {
      Case c = barriers_of_five();
      c.seed = static_cast<std::uint64_t>(step);
      c.silence = std::chrono::seconds(3);
      c.operations.resize(24, c.operations[0]);
      c.computes = std::chrono::milliseconds(1500);
      c.faults = {{.kind = Fault::Kind::kReset, .rank = reset}};
      const Outcome outcome = run(c);
      EXPECT_THAT(outcome.wrong, IsEmpty()) << describe(c);
      EXPECT_EQ(outcome.ranks_failed, 5) << describe(c);
      EXPECT_EQ(outcome.ranks_shrunk, 4) << describe(c);
    }
  }
}

// It looks for a standby when the others still wait for the arbiter, which is stopped.
TEST(Simulation, GoesOnWithARankThatLosesTheArbiterLongBeforeItsSilenceShows) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Case c = barriers_of_five();
    c.ranks = 6;
    c.seed = seed;
    c.silence = std::chrono::seconds(30);
    c.faults = {{.kind = Fault::Kind::kStop, .rank = 0},
                {.kind = Fault::Kind::kReset, .rank = 5, .at = std::chrono::milliseconds(1)}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(outcome.ranks_shrunk, 5) << "seed " << seed;
  }
}

// Those that hear the others and are not heard by them, or the other way round.
TEST(Simulation, GoesOnInOnePartWhereTheNetworkLosesWhatIsSaidOneWay) {
  for (const auto& [first, last, part] : {std::tuple(0, 1, 3), {2, 4, 3}, {4, 4, 4}, {0, 3, 4}}) {
    for (int step = 0; step < 60; ++step) {
      Case c = barriers_of_five();
      c.seed = static_cast<std::uint64_t>(step);
      c.silence = std::chrono::seconds(3);
      c.faults = {{.kind = Fault::Kind::kPartition, .rank = first, .peer = last}};
      c.faults[0].is_one_way = true;
      if (step > 0) c.faults[0].lasts = std::chrono::milliseconds(2000 + 100 * step);
      const Outcome outcome = run(c);
      EXPECT_THAT(outcome.wrong, IsEmpty()) << describe(c);
      if (step > 0) continue;
      EXPECT_EQ(outcome.ranks_shrunk, part) << describe(c);
    }
  }
}

// The last host is cut off, and the others agree to go on without it. While they do the network
// goes down behind the arbiter's host, and is back where it was down before: of six ranks four hear
// each other then, of which two have made the others' communicator.
TEST(Simulation, GoesOnInOnePartWhereTheNetworkComesBackElsewhereWhileTheyAgree) {
  int went_on = 0;
  for (int step = 0; step < 400; ++step) {
    Case c = barriers_of_five();
    c.ranks = 6;
    c.seed = static_cast<std::uint64_t>(step);
    c.silence = std::chrono::seconds(3);
    const Duration again = std::chrono::milliseconds(2900 + step);
    c.faults = {{.kind = Fault::Kind::kPartition, .rank = 4, .peer = 5, .lasts = again},
                {.kind = Fault::Kind::kPartition, .rank = 0, .peer = 1, .at = again}};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << describe(c);
    went_on += outcome.ranks_shrunk > 0 ? 1 : 0;
  }
  EXPECT_GT(went_on, 200);
}

// Ranks 0 and 1 die, and a host is cut off. It asks the standby where the arbiter is, to which that
// comes later: a rank that has gone again has not ended.
TEST(Simulation, GoesOnInOnePartWhereAHostComesBackThatHasAskedInVain) {
  for (int step = 0; step < 20; ++step) {
    Case c = barriers_of_five();
    c.ranks = 7;
    c.seed = static_cast<std::uint64_t>(step);
    c.silence = std::chrono::seconds(1);
    c.network.unacknowledged = rendezvous::unacknowledged_max(c.silence);
    c.operations.resize(20, c.operations[0]);
    c.computes = std::chrono::milliseconds(140);
    c.faults = {{.kind = Fault::Kind::kCrash, .rank = 1, .at = std::chrono::microseconds(20)},
                {.kind = Fault::Kind::kPartition,
                 .rank = 2,
                 .peer = 3,
                 .at = std::chrono::milliseconds(168),
                 .lasts = std::chrono::milliseconds(1200 + 100 * step)},
                {.kind = Fault::Kind::kCrash, .rank = 0, .at = std::chrono::milliseconds(175)}};
    EXPECT_THAT(run(c).wrong, IsEmpty()) << describe(c);
  }
}

// Most survivors have asked to go on and do not hear the arbiter any more when the last one asks:
// they are with those that go on once they hear it again, and were with nobody else meanwhile.
TEST(Simulation, GoesOnWithSurvivorsThatDoNotHearTheArbiterForAWhile) {
  for (int step = 0; step < 60; ++step) {
    Case c = barriers_of_five();
    c.ranks = 6;
    c.seed = static_cast<std::uint64_t>(step);
    c.silence = std::chrono::seconds(4);
    Fault does_not_hear{.kind = Fault::Kind::kPartition,
                        .rank = 2,
                        .peer = 5,
                        .at = std::chrono::milliseconds(50),
                        .lasts = std::chrono::milliseconds(3450)};
    does_not_hear.is_one_way = true;
    const Fault asks_late{
        .kind = Fault::Kind::kStop, .rank = 1, .lasts = std::chrono::milliseconds(3000 + 8 * step)};
    c.faults = {{.kind = Fault::Kind::kCrash, .rank = 4}, asks_late, does_not_hear};
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << describe(c);
    EXPECT_EQ(outcome.ranks_shrunk, 5) << describe(c);
  }
}

// What they showed: a rank that waits for one outside of its part, or for any, or for one of
// several that have left; refusals that follow each other without end; parts whose standby has
// left; and, where what is said one way is lost (from 5022 on), a deaf rank that accuses one of the
// arbiter's part; what is true of parts, of a rank that was missed and of a split, and was judged
// wrong (from 7001405 on); a message that came in
// the place of a cancelled one (150009513); ranks to which nothing comes through, and which
// counted for the part of the standby to which they came (93010247); ranks that heard that rank 0
// had left, and not that its arbiter is silent (510558 and 81666); a rank that went on alone since
// it took the reset of a connection to rank 0, which had left, for a farewell (900021263); and what
// came through where the network was down (806779); and two parts that went on, since the network
// was down elsewhere while they agreed (3003510).
TEST(Simulation, JudgesSeedsThatOnceWentWrong) {
  for (const std::uint64_t seed :
       {4008669,  4009452, 4015513,  4017683,   7008864, 7025540, 7029637, 7038467,
        5022,     2851,    71009210, 7001405,   7001450, 7006878, 7012349, 150009513,
        93010247, 510558,  81666,    900021263, 806779,  3003510}) {
    EXPECT_THAT(run(make_case(seed)).wrong, IsEmpty()) << "seed " << seed;
  }
}

TEST(Simulation, NoticesAnUndueFailure) {
  // A stop that is too short to be a failure's cause, by its kind, and too long for a deadline.
  Case c = make_case(7, {.ranks_min = 4, .ranks_max = 4, .with_faults = false});
  Operation barrier;
  barrier.what.options.algorithm = "dissemination";
  c.operations = {barrier};
  c.faults = {{.kind = Fault::Kind::kStop, .rank = 2, .lasts = std::chrono::seconds(30)}};
  EXPECT_THAT(run(c).wrong, HasSubstr("which did nothing"));
}

TEST(Shrinking, KeepsWhatACaseNeedsToGoWrong) {
  Case c = make_case(1, {.ranks_min = 40, .ranks_max = 40});
  while (c.faults.size() < 4) c.faults.push_back({.kind = Fault::Kind::kSlow, .rank = 1});
  c.faults.push_back({.kind = Fault::Kind::kCrash, .rank = 2});
  const auto goes_wrong = [](const Case& each) {
    return each.ranks >= 5 && std::any_of(each.faults.begin(), each.faults.end(), [](auto& fault) {
             return fault.kind == Fault::Kind::kCrash && fault.rank == 2;
           });
  };
  const Case small = shrunk(c, goes_wrong, 1000);
  EXPECT_EQ(small.ranks, 5);
  EXPECT_THAT(small.faults, SizeIs(1));
  EXPECT_THAT(small.operations, SizeIs(1));
  EXPECT_LE(small.operations.front().what.count, 1u);
}

}  // namespace
}  // namespace unisono::sim
