// That simulated jobs grow, whoever dies at which step, and that newcomers are let in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/search.h"

namespace unisono::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;

// Three ranks that call barriers, of which the last one dies, and so many newcomers at once.
Case case_of_three(std::size_t newcomers) {
  Case c = make_case(7, {.ranks_min = 3, .ranks_max = 3, .with_faults = false, .grows = true});
  Operation barrier;
  barrier.what.options.algorithm = "dissemination";
  c.operations = {barrier, barrier};
  c.network = Network{.delay_min = microseconds(100), .delay_max = microseconds(400)};
  c.faults = {{.kind = Fault::Kind::kCrash, .rank = 2}};
  c.growing = {.target = 2 + static_cast<int>(newcomers),
               .keys = {0, 1, 2},
               .newcomers = std::vector(newcomers, Growing::Newcomer{seconds(1), 2}),
               .wait = seconds(4),
               .timeout = seconds(2),
               .store = {.most = milliseconds(1)}};
  return c;
}

// Five ranks on three hosts, to which nothing happens but this, and so many newcomers at once.
Case case_of_five(std::size_t newcomers, const Fault& fault) {
  Case c = case_of_three(newcomers);
  c.ranks = 5;
  c.growing.keys = {0, 1, 2, 3, 4};
  c.growing.target = 5 + static_cast<int>(newcomers);
  c.silence = milliseconds(3000);
  c.faults = {fault};
  return c;
}

TEST(Growing, RunsASeedTheSameWayEachTime) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Case c = make_case(seed, {.grows = true});
    const Outcome once = run(c), again = run(c);
    EXPECT_EQ(once.steps, again.steps) << "seed " << seed;
    EXPECT_EQ(once.took, again.took) << "seed " << seed;
    EXPECT_EQ(once.ranks_grown, again.ranks_grown) << "seed " << seed;
  }
}

TEST(Growing, PutsOneInThePlaceOfWhoDied) {
  const Case c = case_of_three(1);
  const Outcome outcome = run(c);
  EXPECT_THAT(outcome.wrong, IsEmpty());
  EXPECT_EQ(outcome.ranks_shrunk, 2);
  EXPECT_EQ(outcome.ranks_grown, 3);
}

// In most of these they find one place free at the same moment.
TEST(Growing, TakesInAllThatComeInOneMoment) {
  Case c = case_of_three(3);
  for (c.seed = 1; c.seed <= 40; ++c.seed) {
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "seed " << c.seed;
    EXPECT_EQ(outcome.ranks_grown, 5) << "seed " << c.seed;
  }
}

// The first steps are some tenths of a millisecond long, the last ones seconds.
Duration time_of_step(int step) { return step * step * microseconds(120); }

TEST(Growing, LetsAnotherOneInWhereANewcomerDies) {
  for (int step = 0; step < 100; ++step) {
    Case c = case_of_three(2);
    c.growing.target = 3;
    c.growing.newcomers[1].starts = seconds(6);
    c.faults.push_back({.kind = Fault::Kind::kCrash,
                        .rank = 0,
                        .at = time_of_step(step),
                        .is_of_newcomer = true,
                        .is_in_growth = true});
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "step " << step;
    EXPECT_GE(outcome.ranks_grown, 3) << "step " << step;
  }
}

// The job is over before those that wait for it would have given it up. Rank 0 dies first, so that
// newcomer 3 is on the host of a member that does not lead.
TEST(Growing, DoesNotWaitForANewcomerThatDiesOnAMembersHost) {
  for (std::uint64_t step = 1; step <= 60; ++step) {
    Case c = case_of_three(2);
    c.faults[0].rank = 0;
    c.growing.target = 3;
    c.growing.timeout = seconds(300);
    c.growing.newcomers[1].starts = seconds(6);
    c.faults.push_back({.kind = Fault::Kind::kCrash,
                        .rank = 0,
                        .is_of_newcomer = true,
                        .is_in_growth = true,
                        .step = step});
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "step " << step;
    EXPECT_LT(outcome.took, c.growing.timeout) << "step " << step;
    EXPECT_GE(outcome.ranks_grown, 3) << "step " << step;
  }
}

TEST(Growing, LetsNewcomersInWhicheverMemberDies) {
  for (const Rank victim : {0, 1}) {
    for (int step = 0; step < 100; ++step) {
      Case c = case_of_three(2);
      c.faults.push_back({.kind = Fault::Kind::kCrash,
                          .rank = victim,
                          .at = time_of_step(step),
                          .is_in_growth = true});
      const Outcome outcome = run(c);
      EXPECT_THAT(outcome.wrong, IsEmpty()) << "rank " << victim << ", step " << step;
      EXPECT_GE(outcome.ranks_grown, 3) << "rank " << victim << ", step " << step;
    }
  }
}

// Of five members on three hosts, of which the first, with the arbiter, is cut off, and of two
// newcomers on the others: the members there go on, before or after they have grown. Five steps
// later the job is over before the network goes down.
TEST(Growing, GoesOnInTheGreaterPartWhenTheNetworkGoesDown) {
  for (int step = 0; step < 95; ++step) {
    const Outcome outcome = run(case_of_five(2, {.kind = Fault::Kind::kPartition,
                                                 .rank = 0,
                                                 .peer = 1,
                                                 .at = time_of_step(step),
                                                 .is_in_growth = true}));
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "step " << step;
    EXPECT_GE(outcome.ranks_shrunk, 3) << "step " << step;
  }
}

// Two of five members are with most of the newcomers, and would be the greater part of the new job.
TEST(Growing, GoesOnInOneOfBothJobsWhenTheNetworkGoesDown) {
  int grown = 0;
  for (std::uint64_t step = 1; step <= 60; step += 3) {
    for (const auto at : {milliseconds(0), milliseconds(2), milliseconds(5)}) {
      const Outcome outcome = run(case_of_five(5, {.kind = Fault::Kind::kPartition,
                                                   .rank = 2,
                                                   .peer = 5,
                                                   .at = at,
                                                   .is_in_growth = true,
                                                   .step = step}));
      EXPECT_THAT(outcome.wrong, IsEmpty()) << "step " << step << ", " << at.count() << " ms";
      grown += outcome.ranks_grown > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(grown, 0) << "before the network went down";
}

// A newcomer is stopped in the middle of taking a place that others have meanwhile.
TEST(Growing, LeavesNothingInAPlaceThatIsReadNoMore) {
  EXPECT_THAT(run(make_case(500896, {.grows = true})).wrong, IsEmpty());
}

// What they showed: a passed deadline that was told when the call had ended well; an attempt to
// come to a standby that arrived behind the next one; and, of the judge, ranks that stop, and one
// that finds no arbiter.
TEST(Growing, JudgesSeedsThatOnceWentWrong) {
  for (const std::uint64_t seed : {32008794, 32009361, 53012046, 33006855, 52015220, 71010132}) {
    EXPECT_THAT(run(make_case(seed, {.grows = true})).wrong, IsEmpty()) << "seed " << seed;
  }
}

TEST(Growing, GrowsThoughTheNetworkIsDownForAMoment) {
  for (int step = 0; step < 100; ++step) {
    Case c = case_of_three(2);
    c.silence = milliseconds(3000);
    c.growing.timeout = seconds(5);
    c.faults.push_back({.kind = Fault::Kind::kPartition,
                        .rank = 0,
                        .peer = 1,
                        .at = time_of_step(step),
                        .lasts = milliseconds(700),
                        .is_in_growth = true});
    const Outcome outcome = run(c);
    EXPECT_THAT(outcome.wrong, IsEmpty()) << "step " << step;
    EXPECT_EQ(outcome.ranks_grown, 4) << "step " << step;
  }
}

}  // namespace
}  // namespace unisono::sim
