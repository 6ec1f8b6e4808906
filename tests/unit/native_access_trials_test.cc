// Which path the members of a group choose, of times that are made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <memory>
#include <numeric>
#include <set>

#include "native/access_trials.h"
#include "native/transfer.h"
#include "native_oracle.h"
#include "tests/support/segment_bytes.h"

namespace unisono::test {
namespace {

using native::AccessTrials;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr AccessPath kMapped = AccessPath::kMapped;
constexpr AccessPath kStreamed = AccessPath::kStreamed;
constexpr AccessPath kWindow = AccessPath::kWindow;
constexpr AccessPath kSingleCopy = AccessPath::kSingleCopy;

constexpr std::size_t kLong = std::size_t{4} << 20;
constexpr std::size_t kShort = std::size_t{64} << 10;
constexpr std::size_t kOfACell = 4096;

/// Microseconds that a call takes a member by a path.
using Times = std::function<int(int member, AccessPath path)>;

/// What each member's calls of one class took, in order: [member][call].
using Paths = std::vector<std::vector<AccessPath>>;

/// Members that make the same calls, one after another as they would with cells.
class Members {
 public:
  explicit Members(int count, RanksOptions options = {},
                   Collective collective = Collective::kAllReduce)
      : count_(count),
        options_(options),
        collective_(collective),
        paths_(static_cast<std::size_t>(count)) {}

  struct Calls {
    int count;
    Times times;
  };
  /// All of them are calls of one size. Times may change between two runs of calls.
  Paths make(std::size_t bytes, const std::vector<Calls>& runs) {
    std::barrier step(count_);
    const auto failures = run_threads(count_, options_, [&](TestRank& rank) {
      std::vector<int> members(static_cast<std::size_t>(count_));
      std::iota(members.begin(), members.end(), 0);
      auto group = rank.segment->open_group(1, members);
      rank.check(group.has_value(), group.status().message());
      if (!group) return;
      AccessTrials trials(**group);
      std::uint64_t sequence = 100;
      for (const Calls& calls : runs) {
        for (int call = 0; call < calls.count; ++call) {
          step.arrive_and_wait();
          one(trials, {rank.self, bytes, ++sequence}, calls.times);
        }
      }
      step.arrive_and_wait();
      if (rank.self == 0) learned_ = rank.segment->learned();
    });
    EXPECT_THAT(failures, IsEmpty());
    return paths_;
  }
  /// A member's calls so far that went by a path.
  long count(int member, AccessPath path) const {
    const auto& paths = paths_[static_cast<std::size_t>(member)];
    return std::count(paths.begin(), paths.end(), path);
  }
  /// What the next job would know.
  const TrialFacts& learned() const { return learned_; }

 private:
  struct Call {
    int member;
    std::size_t bytes;
    std::uint64_t sequence;
  };
  void one(AccessTrials& trials, const Call& call, const Times& times) {
    const auto number = AccessTrials::class_of(collective_, call.bytes);
    const AccessPath path = trials.next(number, call.sequence);
    paths_[static_cast<std::size_t>(call.member)].push_back(path);
    if (!trials.is_trial()) return;
    // Members come one after another, and who waits for the last one does not work.
    const TimePoint last = TimePoint() + std::chrono::seconds(call.sequence);
    const auto waits = std::chrono::milliseconds(10 * (count_ - 1 - call.member));
    const int took = times(call.member, path);
    trials.note(call.bytes, last - waits, last + std::chrono::microseconds(took), took > 0);
  }

  int count_;
  RanksOptions options_;
  Collective collective_;
  Paths paths_;
  TrialFacts learned_{};
};

Times times_of(int mapped, int streamed, int single_copy, int window = 1000) {
  return [=](int, AccessPath path) {
    return path == kMapped     ? mapped
           : path == kStreamed ? streamed
           : path == kWindow   ? window
                               : single_copy;
  };
}

/// So many calls of each path, one after another.
std::vector<AccessPath> rows(const std::vector<std::pair<AccessPath, int>>& of) {
  std::vector<AccessPath> paths;
  for (const auto& [path, calls] : of)
    paths.insert(paths.end(), static_cast<std::size_t>(calls), path);
  return paths;
}

WayTimes<4>& of_class(TrialFacts& facts, std::size_t bytes,
                      Collective collective = Collective::kAllReduce) {
  return facts
      .calls[static_cast<std::size_t>(collective)][static_cast<std::size_t>(size_of_call(bytes))];
}

TEST(AccessTrials, TryEachPathAndGoOnWithTheFastest) {
  const Paths paths = Members(2).make(kLong, {{17, times_of(100, 70, 50)}});
  EXPECT_THAT(paths,
              Each(ElementsAre(kMapped,                                             //
                               kMapped, kMapped, kMapped, kMapped,                  //
                               kStreamed, kStreamed, kStreamed, kStreamed,          //
                               kSingleCopy, kSingleCopy, kSingleCopy, kSingleCopy,  //
                               kMapped, kMapped, kSingleCopy, kSingleCopy)));
}

// One copy is slow in its first calls, until a cache holds what it reads: in short rows, and in
// the first half of long ones. What is far behind is left out.
TEST(AccessTrials, TryAgainInLongRowsWhatWasNotFarBehind) {
  std::vector<int> in_a_row(2);
  const Times times = [&](int member, AccessPath path) {
    int& calls = in_a_row[static_cast<std::size_t>(member)];
    calls = path == kSingleCopy ? calls + 1 : 0;
    return path == kMapped ? 100 : path == kStreamed ? 160 : std::max(50, 150 - 10 * calls);
  };
  Members members(2);
  for (const auto& path : members.make(kLong, {{95, times}})) {
    EXPECT_EQ(path[15], kMapped);
    EXPECT_EQ(path[64], kMapped);
    EXPECT_THAT(std::vector(path.begin() + 65, path.begin() + 89),
                ElementsAreArray(rows({{kMapped, 12}, {kSingleCopy, 12}})));
    EXPECT_EQ(path.back(), kSingleCopy);
  }
  TrialFacts learned = members.learned();
  EXPECT_THAT(of_class(learned, kLong), ElementsAre(25'000, 0, 12'500, 0));
}

// What long rows said stays, as long as short ones do not show it far behind.
TEST(AccessTrials, StayWithWhatLongRowsSaid) {
  const Paths paths = Members(2).make(
      kLong,
      {{1100, times_of(100, 70, 50)}, {40, times_of(60, 70, 70)}, {80, times_of(60, 70, 70)}});
  for (const auto& path : paths) {
    EXPECT_EQ(path[1080], kSingleCopy);
    EXPECT_EQ(path[1130], kSingleCopy) << "short rows say mapped memory";
    EXPECT_EQ(path.back(), kMapped) << "and so do long ones";
  }
}

TEST(AccessTrials, JudgeAPathByItsSlowestMember) {
  const Times times = [](int member, AccessPath path) {
    if (path == kSingleCopy) return member == 1 ? 200 : 1;
    return path == kStreamed ? 60 : 90;
  };
  for (const auto& path : Members(3).make(kShort, {{40, times}})) {
    EXPECT_EQ(path.back(), kStreamed);
  }
}

TEST(AccessTrials, TakeTheMedianOfTheBetterRow) {
  // Mapped memory is slow but in some of its six trials, two rows of three; the others are in
  // between.
  const auto choice = [](const std::set<int>& fast) {
    std::vector<int> trials(2);
    const Times times = [&](int member, AccessPath path) {
      if (path != kMapped) return path == kStreamed ? 50 : 60;
      return fast.contains(trials[static_cast<std::size_t>(member)]++) ? 10 : 1000;
    };
    return Members(2).make(kShort, {{40, times}}).front().back();
  };
  EXPECT_EQ(choice({3, 5}), kMapped);
  EXPECT_EQ(choice({0, 1}), kMapped);
  EXPECT_EQ(choice({2, 4}), kStreamed) << "one lucky call in a row is none";
}

TEST(AccessTrials, KeepTheFirstForALittleGain) {
  EXPECT_EQ(Members(2).make(kShort, {{40, times_of(100, 97, 97)}}).front().back(), kMapped);
  EXPECT_EQ(Members(2).make(kShort, {{40, times_of(100, 94, 97)}}).front().back(), kStreamed);
}

TEST(AccessTrials, KeepTheFirstWhereNoPathMattered) {
  EXPECT_EQ(Members(2).make(kShort, {{40, times_of(0, 0, 0, 0)}}).front().back(), kMapped);
  const Times of_one = [](int member, AccessPath path) {
    return member == 0 ? 0 : times_of(100, 60, 80)(member, path);
  };
  for (const auto& path : Members(2).make(kShort, {{40, of_one}})) {
    EXPECT_EQ(path.back(), kStreamed) << "the other member's times count";
  }
}

TEST(AccessTrials, TakeTheWindowForMemoryInPlaceWhereThatIsFaster) {
  EXPECT_THAT(Members(2).make(kShort, {{40, times_of(100, 90, 110, 50)}}),
              Each(testing::Contains(kWindow).Times(testing::Gt(10))));
  EXPECT_THAT(Members(2).make(kLong, {{40, times_of(100, 90, 110, 50)}}),
              Each(Each(testing::Ne(kWindow))));
}

TEST(AccessTrials, NeverReadACellBySingleCopy) {
  const Paths paths = Members(2).make(kOfACell, {{60, times_of(100, 60, 1)}});
  EXPECT_THAT(paths, Each(Each(testing::Ne(kSingleCopy))));
  EXPECT_THAT(paths, Each(testing::Contains(kStreamed)));
}

TEST(AccessTrials, ComeAgainWhenTheMachineHasChanged) {
  for (const auto& path :
       Members(2).make(kShort, {{2000, times_of(100, 60, 80)}, {6000, times_of(60, 100, 80)}})) {
    ASSERT_THAT(path, SizeIs(8000));
    EXPECT_EQ(path[1999], kStreamed);
    EXPECT_EQ(path[7999], kMapped);
  }
}

/// Where one copy takes so much less than two that these are far behind, streamed or not, or so
/// much more.
HostFacts host_where_the_kernel_takes(std::uint32_t time) {
  return {.waits = {200, 500}, .copies = {{{300'000, 300'000, 900'000, 900'000, time, 20'000}}}};
}

TEST(AccessTrials, BeginWithWhatIsPredicted) {
  RanksOptions options;
  options.known.host = host_where_the_kernel_takes(100'000);
  const Paths paths = Members(2, options).make(kLong, {{17, times_of(100, 70, 90)}});
  EXPECT_THAT(paths,
              Each(ElementsAreArray(rows({{kSingleCopy, 1}, {kMapped, 4}, {kSingleCopy, 12}}))))
      << "the first is always tried, streaming is far behind";
}

// They measure in turns, which says too little of calls in which one of them alone writes.
TEST(AccessTrials, LeaveNothingOutWhereOneOfTwoRanksWrites) {
  RanksOptions options;
  options.known.host = host_where_the_kernel_takes(100'000);
  Members members(2, options, Collective::kBroadcast);
  for (const auto& path : members.make(kLong, {{17, times_of(100, 40, 90)}})) {
    EXPECT_EQ(path.back(), kStreamed);
  }
}

TEST(AccessTrials, LeaveOutWhatIsFarWhereOneOfThreeRanksWrites) {
  RanksOptions options;
  options.known.host = host_where_the_kernel_takes(100'000);
  Members members(3, options, Collective::kBroadcast);
  for (const auto& path : members.make(kLong, {{17, times_of(100, 40, 90)}})) {
    EXPECT_THAT(path, Not(Contains(kStreamed)));
  }
}

TEST(AccessTrials, PredictNothingWhereRanksShareACore) {
  RanksOptions options;
  options.known.host = host_where_the_kernel_takes(100'000);
  options.cores = 2;
  for (const auto& path : Members(3, options).make(kLong, {{17, times_of(100, 40, 90)}})) {
    EXPECT_EQ(path.front(), kMapped);
    EXPECT_EQ(path.back(), kStreamed);
  }
}

// Those that measured may have been an odd job's ranks, which may read no others.
TEST(AccessTrials, TryWhatTheKernelRefusedWhenItWasMeasured) {
  RanksOptions options;
  options.known.host = host_where_the_kernel_takes(0);
  for (const auto& path : Members(2, options).make(kLong, {{17, times_of(100, 70, 50)}})) {
    EXPECT_EQ(path.front(), kMapped);
    EXPECT_EQ(path.back(), kSingleCopy);
  }
}

TEST(AccessTrials, TryAgainWhatWasLeftOut) {
  RanksOptions options;
  options.known.host = host_where_the_kernel_takes(100'000);
  Members members(2, options);
  for (const auto& path : members.make(kLong, {{1140, times_of(100, 40, 90)}})) {
    EXPECT_EQ(path[1000], kSingleCopy);
    EXPECT_EQ(path[1139], kStreamed) << "a prediction is where trials begin, and no order";
  }
}

TEST(AccessTrials, TellTheNextJobWhatTheyLearned) {
  Members members(2);
  members.make(kLong, {{17, times_of(100, 70, 50)}});
  TrialFacts expected{};
  of_class(expected, kLong) = {25'000, 17'500, 12'500, 0};  // ns for a MiB
  EXPECT_EQ(members.learned(), expected);
}

// The other members are told nothing but by the first one.
TEST(AccessTrials, BeginWithWhatAnEarlierJobLearned) {
  RanksOptions options;
  of_class(options.known, kLong) = {25'000, 17'500, 12'500, 0};
  of_class(options.known, kShort) = {1'600'000, 1'700'000, 1'800'000, 1'900'000};
  Members members(3, options);
  for (const auto& paths : members.make(kLong, {{249, times_of(100, 70, 50)}})) {
    EXPECT_THAT(paths, Each(kSingleCopy));
  }
  EXPECT_FALSE(knows_any(members.learned())) << "nothing was tried";
  Members of_short(2, options);
  for (const auto& paths : of_short.make(kShort, {{100, times_of(100, 106, 112, 118)}})) {
    EXPECT_THAT(std::vector(paths.begin(), paths.begin() + 2), Each(kMapped)) << "before a check";
    EXPECT_THAT(paths, Contains(kStreamed).Times(3)) << "a row of the check";
    EXPECT_EQ(paths.back(), kMapped);
  }
  EXPECT_FALSE(knows_any(of_short.learned()));
}

// What it takes to come to its buffers is in its time.
TEST(AccessTrials, NeverTimeTheFirstCall) {
  RanksOptions options;
  of_class(options.known, kLong) = {25'000, 17'500, 12'500, 0};
  const Times fail = [](int, AccessPath) {
    ADD_FAILURE();
    return 1;
  };
  Members(2, options).make(kLong, {{1, fail}});
  Members(2).make(kLong, {{1, fail}});
}

TEST(AccessTrials, DoNotStayWithWhatIsNoLongerTrue) {
  RanksOptions options;
  of_class(options.known, kLong) = {25'000, 17'500, 12'500, 0};
  Members members(2, options);
  for (const auto& paths : members.make(kLong, {{350, times_of(40, 70, 50)}})) {
    EXPECT_EQ(paths.front(), kSingleCopy);
    EXPECT_EQ(paths.back(), kMapped);
  }
  TrialFacts learned = members.learned();
  EXPECT_THAT(of_class(learned, kLong), ElementsAre(10'000, 0, 12'500, 0));
}

// 64 KiB in 100 us are 1.6 ms for a MiB: what is known is not half of what mapped memory takes now.
TEST(AccessTrials, TryAtOnceWhatIsKnownToHaveTakenHalf) {
  RanksOptions options;
  of_class(options.known, kShort) = {700'000, 750'000, 800'000, 900'000};
  for (const auto& paths : Members(2, options).make(kShort, {{60, times_of(100, 90, 95, 98)}})) {
    EXPECT_EQ(paths.front(), kMapped);
    EXPECT_EQ(paths.back(), kStreamed);
  }
  of_class(options.known, kShort) = {850'000, 900'000, 950'000, 990'000};
  Members members(2, options);
  members.make(kShort, {{1000, times_of(100, 102, 104, 106)}});
  EXPECT_FALSE(knows_any(members.learned()))
      << "calls of other sizes may take so much more for a byte";
}

// Lines that are handed over twice as fast make no difference to who stores past the caches.
TEST(AccessTrials, TryAgainSoonWhereAnotherPathHasBecomeFaster) {
  const std::vector<Members::Calls> calls{{100, times_of(200, 100, 200)},
                                          {500, times_of(60, 100, 200)}};
  for (const std::size_t bytes : {kShort, kOfACell}) {
    for (const auto& path : Members(2).make(bytes, calls)) {
      EXPECT_EQ(path[99], kStreamed);
      EXPECT_EQ(path.back(), kMapped);
    }
  }
}

TEST(AccessTrials, CheckLongCallsByTheHeldPathAlone) {
  RanksOptions options;
  of_class(options.known, kLong) = {25'000, 17'500, 12'500, 0};
  for (const auto& path : Members(2, options).make(kLong, {{200, times_of(10, 70, 50)}})) {
    EXPECT_THAT(path, Each(kSingleCopy));
  }
}

TEST(AccessTrials, TryAgainSoonWhenTheHeldPathTakesMoreThanTwice) {
  const Times before = times_of(100, 200, 200), after = times_of(230, 200, 220);
  for (const auto& path : Members(2).make(kShort, {{100, before}, {150, after}})) {
    EXPECT_EQ(path[99], kMapped);
    EXPECT_EQ(path.back(), kStreamed);
  }
  for (const auto& path : Members(2).make(kOfACell, {{100, before}, {400, after}})) {
    EXPECT_EQ(path[99], kMapped);
    EXPECT_EQ(path.back(), kStreamed);
  }
}

// And so does less than half: the other paths may gain more.
TEST(AccessTrials, TryAgainSoonWhenTheHeldPathTakesLessThanHalf) {
  const std::vector<Members::Calls> calls{{100, times_of(200, 100, 200)},
                                          {150, times_of(40, 45, 45)}};
  for (const auto& path : Members(2).make(kShort, calls)) {
    EXPECT_EQ(path[99], kStreamed);
    EXPECT_EQ(path.back(), kMapped);
  }
}

// Where times wander so that each check asks for trials, and these choose another path each time.
TEST(AccessTrials, CheckRarelyWhereTimesWander) {
  std::vector<int> timed(2);
  const Times times = [&](int member, AccessPath path) {
    const int call = timed[static_cast<std::size_t>(member)]++;
    const bool is_odd = (call + 12) / 36 % 2 == 1;  // a check and its trials are 36 calls
    return path == (is_odd ? kMapped : kStreamed) ? 10 : 100;
  };
  for (const auto& path : Members(2).make(kShort, {{4900, times}})) {
    EXPECT_THAT(path, Contains(kSingleCopy).Times(testing::Gt(30))) << "of trials, too";
  }
  EXPECT_LT(timed[0], 8 * 36);
}

// Streaming is predicted to be far behind, but has won before.
TEST(AccessTrials, TryAllOfAClassThatAnEarlierJobTried) {
  RanksOptions options;
  options.known.host = host_where_the_kernel_takes(100'000);
  of_class(options.known, kLong) = {25'000, 10'000, 22'500, 0};
  Members members(2, options);
  for (const auto& paths : members.make(kLong, {{280, times_of(100, 40, 90)}})) {
    EXPECT_EQ(paths.front(), kStreamed);
    EXPECT_EQ(paths.back(), kStreamed);
  }
  TrialFacts learned = members.learned();
  EXPECT_THAT(of_class(learned, kLong), ElementsAre(25'000, 10'000, 22'500, 0));
}

// A class begins with none of the paths that are not tried of it, however fast those are said to
// be.
TEST(AccessTrials, BeginWithWhatIsTriedOfTheClass) {
  RanksOptions options;
  of_class(options.known, kLong) = {25'000, 17'500, 12'500, 1};
  of_class(options.known, kOfACell) = {25'000'000, 17'500'000, 2, 1};
  EXPECT_THAT(Members(2, options).make(kLong, {{200, times_of(100, 70, 50)}}),
              Each(Each(kSingleCopy)));
  for (const auto& path : Members(2, options).make(kOfACell, {{200, times_of(100, 70, 1, 1)}})) {
    EXPECT_EQ(path.front(), kStreamed);
    EXPECT_EQ(path.back(), kStreamed);
    EXPECT_THAT(path, Each(testing::AnyOf(kMapped, kStreamed)));
  }
}

// A payload of one of two ranks may go around their rotation, and lies in the window then.
TEST(AccessTrials, TryTheRotationForCellsOfTwoRanksThatGoOneWay) {
  const auto choice = [](int members, Collective collective, std::size_t bytes) {
    const Times times = times_of(100, 90, 1, 50);
    return Members(members, {}, collective).make(bytes, {{1500, times}}).front().back();
  };
  EXPECT_EQ(choice(2, Collective::kScatter, shm::kCellPayloadBytes), kWindow);
  EXPECT_EQ(choice(3, Collective::kScatter, shm::kCellPayloadBytes), kStreamed);
  EXPECT_EQ(choice(2, Collective::kReduce, shm::kCellPayloadBytes), kWindow);
  EXPECT_EQ(choice(2, Collective::kAllReduce, shm::kCellPayloadBytes), kStreamed);
  EXPECT_EQ(choice(2, Collective::kScatter, 2049), kWindow);
  EXPECT_EQ(choice(2, Collective::kScatter, 2048), kStreamed) << "it would take longer";
}

// In the first lap lines come from where they never come from again.
TEST(AccessTrials, GoAroundTheRotationBeforeAnythingIsTimed) {
  RanksOptions options;
  of_class(options.known, kShort, Collective::kScatter) = {1'600'000, 800'000, 2'400'000,
                                                           1'600'000};
  for (const int count : {2, 3}) {
    Members members(count, options, Collective::kScatter);
    const Times times = [&](int member, AccessPath path) {
      const bool first_lap =
          members.count(member, kMapped) < 32 || members.count(member, kStreamed) < 32;
      return (first_lap ? 5 : 1) * times_of(100, 50, 150, 100)(member, path);
    };
    for (const auto& path : members.make(kShort, {{400, times}})) {
      EXPECT_EQ(path.back(), kStreamed);
    }
    EXPECT_FALSE(knows_any(members.learned())) << "nothing has changed";
  }
}

// What two of three find out is not what three would.
TEST(AccessTrials, OfAPartOfTheRanksNeitherKnowNorTell) {
  RanksOptions options;
  of_class(options.known, kLong) = {25'000, 17'500, 12'500, 0};
  const auto failures = run_threads(3, options, [](TestRank& rank) {
    if (rank.self == 2) return;
    auto group = rank.segment->open_group(1, {0, 1});
    AccessTrials trials(**group);
    const auto number = AccessTrials::class_of(Collective::kAllReduce, kLong);
    rank.check(trials.next(number, 1) == kMapped, "it begins with what it does not know");
  });
  EXPECT_THAT(failures, IsEmpty());
}

TEST(AccessTrials, CompareTimesOfAMebibyte) {
  const auto failures = run_threads(1, {}, [](TestRank& rank) {
    auto group = rank.segment->open_group(1, {0});
    AccessTrials trials(**group);
    const auto number = AccessTrials::class_of(Collective::kAllReduce, 4 * kLong);
    AccessPath path = kMapped;
    for (std::uint64_t call = 0; call < 20; ++call) {
      path = trials.next(number, call);
      if (!trials.is_trial()) continue;
      // The first takes less time, for even less.
      const std::size_t bytes = path == kMapped ? 3 * kLong : 6 * kLong;
      const TimePoint begin = TimePoint() + std::chrono::seconds(1);
      const auto took =
          std::chrono::microseconds(path == kStreamed ? 150 : 100 * bytes / (3 * kLong));
      trials.note(bytes, begin, begin + took, true);
    }
    rank.check(path == kStreamed, "streamed");
  });
  EXPECT_THAT(failures, IsEmpty());
}

// Long enough that each path is tried and one chosen, by some ranks with memory that is read in
// place.
TEST(AccessTrials, ChangeNoResult) {
  for (const int n : {2, 3}) {
    const auto failures = run_processes(n, {}, [](TestRank& rank) {
      for (const Collective collective : all_collectives()) {
        for (int call = 0; call < 64; ++call) {
          // Of a cell, of a window, and now and then of several slots.
          for (const std::size_t count : {1003, 20003, 400003}) {
            if (count > 100000 && call % 4 != 0) continue;
            run_and_check(rank, {collective, count, 0, false, call % 5 == rank.self});
          }
        }
      }
    });
    EXPECT_THAT(failures, IsEmpty());
  }
}

TEST(AccessTrials, TimeTheCallsOfAGroup) {
  const auto failures = run_processes(2, {}, [](TestRank& rank) {
    auto group = rank.segment->open_group(1, {0, 1});
    const shm::TrialStamps& stamps = (*group)->trial_stamps(rank.self);
    rank.group = std::make_unique<native::Group>(std::move(*group));
    for (const std::size_t count : {1003, 20003, 400003}) {
      const TimePoint before = Clock::now();
      for (int call = 0; call < 40; ++call) {
        run_and_check(rank, {Collective::kAllReduce, count});
      }
      const auto in_time = [&](const shm::TrialStamp& stamp) {
        const auto begin = TimePoint(std::chrono::nanoseconds(stamp.begin.load()));
        const auto end = TimePoint(std::chrono::nanoseconds(stamp.end.load()));
        return before <= begin && begin < end && end <= Clock::now();
      };
      rank.check(std::all_of(std::begin(stamps), std::end(stamps), in_time),
                 std::to_string(count) + " elements");
    }
  });
  EXPECT_THAT(failures, IsEmpty());
}

// The window is reserved by the first call that goes through it.
TEST(AccessTrials, TryTheWindowForMemoryThatCanBeReadInPlace) {
  for (const std::size_t count : {std::size_t{20003}, std::size_t{400003}}) {
    const auto failures = run_processes(2, {}, [count](TestRank& rank) {
      const std::size_t before = reserved_segment_bytes();
      rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");  // everyone has looked
      OracleCase in_heap{Collective::kAllGather, count};
      in_heap.heap = true;
      for (int call = 0; call < 40; ++call) run_and_check(rank, in_heap);
      const bool is_short = count * sizeof(std::int32_t) <= (1 << 20);
      rank.check((reserved_segment_bytes() > before) == is_short, "a window was tried, or not");
    });
    EXPECT_THAT(failures, IsEmpty());
  }
}

TEST(AccessTrials, AreApartByCollectiveAndPowerOfTwo) {
  const auto of = [](std::size_t bytes) {
    return AccessTrials::class_of(Collective::kAllReduce, bytes);
  };
  EXPECT_EQ(of(0), AccessTrials::kNone);
  EXPECT_EQ(of(512), AccessTrials::kNone);
  EXPECT_EQ(of(native::kNotAgreed), AccessTrials::kNone);
  EXPECT_NE(of(513), AccessTrials::kNone);
  EXPECT_EQ(of(513), of(1024));
  EXPECT_NE(of(1024), of(1025));
  EXPECT_NE(of(shm::kCellPayloadBytes), of(shm::kCellPayloadBytes + 1));
  EXPECT_NE(of(8 << 20), of((8 << 20) + 1));
  EXPECT_EQ(of(16 << 20), of(std::size_t{1} << 40));
  EXPECT_NE(of(1024), AccessTrials::class_of(Collective::kAllGather, 1024));
}

}  // namespace
}  // namespace unisono::test
