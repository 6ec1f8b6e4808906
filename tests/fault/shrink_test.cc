// Survivors go on: shrink() gives all of them the same working communicator, whoever dies, when
// ever, and says why to a rank that the others go on without.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/process_facts.h"
#include "tests/fault/outcome_board.h"
#include "tests/fault/survivors.h"
#include "tests/support/eventually.h"
#include "tests/support/rank_job.h"
#include "tests/support/seed.h"
#include "tests/support/segment_bytes.h"
#include "tests/support/setting.h"
#include "tests/support/tested_transports.h"
#include "tests/support/try_limits.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

constexpr int kRanks = 4;

struct Board {
  std::atomic<int> entered{0};
  std::atomic<int> went_on{0};
  std::atomic<std::int64_t> killed_at_ns{0};
  std::atomic<std::int64_t> last_at_ns{0};
  Outcome outcome[kBoardRanks];
};

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  std::abort();
}

// Once so many others are past what it takes part in.
void die_when(Board& board, int entered) {
  if (!eventually([&] { return board.entered == entered; })) return;
  board.killed_at_ns = now_ns();
  die();
}

std::vector<Rank> all_but(const std::vector<Rank>& gone) {
  std::vector<Rank> left;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (std::find(gone.begin(), gone.end(), rank) == gone.end()) left.push_back(rank);
  }
  return left;
}

// Runs ranks as processes of which some are to die. What a survivor throws it says, and it is
// missing among those that went on.
void run_doomed(const std::string& transport, const std::function<void(Communicator&)>& body,
                int ranks = kRanks) {
  const auto said = [&body](Communicator& comm) {
    const Rank self = comm.rank();
    try {
      body(comm);
    } catch (const std::exception& error) {
      std::printf("rank %d: %s\n", self, error.what());
      std::fflush(stdout);
      throw;
    }
  };
  try {
    spawn(ranks, said,
          {.as = SpawnOptions::As::kProcesses, .transport = transport, .timeout = kCallTimeout});
    ADD_FAILURE() << "nobody died";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
  }
}

void note_gone_on(Board& board) {
  board.last_at_ns = now_ns();
  ++board.went_on;
}

class ShrinkOfProcesses : public testing::TestWithParam<std::string> {};

TEST_P(ShrinkOfProcesses, LetsTheSurvivorsOfAKillGoOn) {
  for (const Rank victim : {0, 1, 2, 3}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    Shared<Board> board;
    run_doomed(GetParam(), [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == victim) die_when(*board, kRanks - 1);
      ++board->entered;
      call_until_failure(comm);
      Communicator left = comm.shrink();
      note_gone_on(*board);
      const Rank self = comm.rank();
      comm.close();
      expect_members(left, self, all_but({victim}));
      ++board->went_on;
    });
    EXPECT_EQ(board->went_on, 2 * (kRanks - 1));
    std::printf("%s: the last survivor went on after %.1f ms\n", GetParam().c_str(),
                static_cast<double>(board->last_at_ns - board->killed_at_ns) / 1e6);
    if (HasFailure()) return;
  }
}

TEST_P(ShrinkOfProcesses, MayBeNeededAgainAndAgain) {
  Shared<Board> board;
  run_doomed(GetParam(), [&](Communicator& world) {
    const Rank self = world.rank();
    std::vector<Rank> gone;
    Communicator comm = world.duplicate();
    int entered = 0;
    for (const Rank victim : {2, 0, 3}) {
      comm.barrier();
      entered += comm.size() - 1;
      if (self == victim) die_when(*board, entered);
      ++board->entered;
      call_until_failure(comm);
      comm = comm.shrink();
      gone.push_back(victim);
      expect_members(comm, self, all_but(gone));
    }
    ++board->went_on;
  });
  EXPECT_EQ(board->went_on, 1);
}

// Where the other one held the arbiter, too: nobody is left to agree with.
TEST_P(ShrinkOfProcesses, OfTwoLeavesTheLastOne) {
  for (const Rank victim : {0, 1}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    Shared<Board> board;
    const auto body = [&](Communicator& comm) {
      const Rank self = comm.rank();
      comm.barrier();
      if (self == victim) die_when(*board, 1);
      ++board->entered;
      call_until_failure(comm);
      Communicator left = comm.shrink();
      expect_members(left, self, {self});
      ++board->went_on;
    };
    run_doomed(GetParam(), body, 2);
    EXPECT_EQ(board->went_on, 1);
  }
}

// A second one dies while the others agree or make their communicator.
TEST_P(ShrinkOfProcesses, LeavesOutWhoDiesMeanwhile) {
  const SeedTrace seed_trace;
  std::mt19937_64 random = random_stream(18);
  for (int round = 0; round < (is_full_run() ? 40 : is_short_run() ? 6 : 12); ++round) {
    const auto delay_us = static_cast<useconds_t>(below(random, 4000));
    SCOPED_TRACE("after " + std::to_string(delay_us) + " us");
    Shared<Board> board;
    run_doomed(GetParam(), [&](Communicator& comm) {
      const Rank self = comm.rank();
      comm.barrier();
      if (self == 2) die_when(*board, kRanks - 1);
      ++board->entered;
      call_until_failure(comm);
      if (self == 3) {
        std::thread([&] {
          usleep(delay_us);
          die();
        }).detach();
      }
      Communicator left = comm.shrink();
      if (left.size() == kRanks - 1) {  // it was made before
        if (self == 3) return call_until_failure(left);
        call_until_failure(left);
        left = left.shrink();
      }
      expect_members(left, self, {0, 1});
      ++board->went_on;
    });
    EXPECT_EQ(board->went_on, 2);
    if (HasFailure()) return;
  }
}

TEST_P(ShrinkOfProcesses, KeepsTheOrderOfThePart) {
  Shared<Board> board;
  run_doomed(GetParam(), [&](Communicator& comm) {
    const Rank self = comm.rank();
    Communicator reversed = comm.split(0, -self);
    reversed.barrier();
    if (self == 2) die_when(*board, kRanks - 1);
    ++board->entered;
    call_until_failure(reversed);
    Communicator left = reversed.shrink();
    expect_members(left, self, {3, 1, 0});
    ++board->went_on;
  });
  EXPECT_EQ(board->went_on, 3);
}

// Also where no process reads another's memory.
TEST(Shrink, GivesBackTheMemoryOfCommunicatorsThatTheDeadHeld) {
  const Setting no_single_copy("UNISONO_ACCESS", "window");
  Shared<Board> board;
  struct Victim {
    char process[kProcessNameBytesMax + 1];
  };
  Shared<Victim> victim;
  const auto body = [&](Communicator& comm) {
    Communicator held = comm.duplicate();
    std::vector<int> data(300'000, 1);
    held.all_reduce(data, ops::sum);
    comm.barrier();
    if (comm.rank() == 2) {
      std::snprintf(victim->process, sizeof victim->process, "%s", process_name().c_str());
      die_when(*board, 2);
    }
    ++board->entered;
    call_until_failure(comm);
    Communicator left = comm.shrink();
    require(eventually([&] { return has_ended(victim->process); }), "its process is there");
    left.barrier();
    const std::size_t before = reserved_segment_bytes();
    left.barrier();
    held.close();
    left.barrier();
    require(reserved_segment_bytes() < before, "it is not given back");
    left.barrier();
    ++board->went_on;
  };
  run_doomed("shm", body, 3);
  EXPECT_EQ(board->went_on, 2);
}

// The others have not waited for it for ever. They come at the same time: who is late would be left
// out as well.
void leave_out_who_does_not_come(std::chrono::milliseconds limit) {
  std::atomic<int> here{0};
  run_ranks(kRanks, "auto", [&](Communicator& comm) {
    const Rank self = comm.rank();
    Communicator part = comm.duplicate();
    if (self == 1) {
      comm.barrier({.timeout = 3 * kCallTimeout});  // the others have gone on
      const Outcome outcome = outcome_of([&] { part.shrink(); });
      require(outcome.written && outcome.code == ErrorCode::kTimeout && outcome.rank == 1,
              "went on: " + std::string(outcome.message));
      require(std::string(outcome.message).find("go on without this rank") != std::string::npos,
              outcome.message);
      return;
    }
    ++here;
    require(eventually([&] { return here >= kRanks - 1; }), "the others have not come");
    Communicator left = part.shrink(limit);
    expect_members(left, self, all_but({1}));
    comm.barrier();
  });
}

TEST(Shrink, LeavesOutWhoDoesNotComeInTime) {
  using std::chrono::milliseconds;
  try_limits({milliseconds(2000), milliseconds(5000), milliseconds(8000)},
             leave_out_who_does_not_come);
}

TEST(Shrink, DoesNotWaitForWhoHasClosedTheCommunicator) {
  run_ranks(kRanks, "auto", [](Communicator& comm) {
    const Rank self = comm.rank();
    Communicator part = comm.duplicate();
    if (self == 2) part.abort("no more");
    call_until_failure(part);
    if (self == 2) {
      part.close();
      return comm.barrier();
    }
    Communicator left = part.shrink(std::chrono::hours(1));
    expect_members(left, self, all_but({2}));
    comm.barrier();
  });
}

// Survivors meet over transports, and may be as many as the algorithm does not take.
TEST(Shrink, AsksNoAlgorithmOfTheSettings) {
  const Setting order("UNISONO_ORDER", "canonical");
  for (const char* algorithms : {"all_reduce=native,all_gather=native",
                                 "all_reduce=halving_doubling,all_gather=recursive_doubling"}) {
    SCOPED_TRACE(algorithms);
    const Setting setting("UNISONO_ALGORITHM", algorithms);
    run_ranks(4, "shm", [](Communicator& comm) {
      Communicator part = comm.duplicate();
      const bool leaves = comm.rank() == 3;
      if (leaves) part.abort("no more");
      call_until_failure(part);
      if (leaves) {
        part.close();
      } else {
        Communicator survivors = part.shrink();
        EXPECT_EQ(survivors.size(), 3);
        EXPECT_EQ(survivors.duplicate().size(), 3);
      }
      comm.barrier();
    });
  }
}

TEST(Shrink, OfTwoCommunicatorsAtOnceOnTwoThreads) {
  run_ranks(kRanks, "auto", [](Communicator& comm) {
    const Rank self = comm.rank();
    Communicator first = comm.duplicate(), second = comm.duplicate();
    std::exception_ptr failure;
    std::thread other([&] {
      try {
        Communicator left = second.shrink();
        expect_members(left, self, all_but({}));
      } catch (...) {
        failure = std::current_exception();
      }
    });
    Communicator left = first.shrink();
    expect_members(left, self, all_but({}));
    other.join();
    if (failure) std::rethrow_exception(failure);
    comm.barrier();
  });
}

class ShrinkOfThreads : public testing::TestWithParam<std::string> {};

TEST_P(ShrinkOfThreads, EndsAHealthyCommunicatorForAll) {
  run_ranks(kRanks, GetParam(), [](Communicator& comm) {
    const Rank self = comm.rank();
    Communicator part = comm.duplicate();
    // Two of them are told by the others.
    if (self >= 2) call_until_failure(part);
    Communicator left = part.shrink();
    expect_members(left, self, all_but({}));
    require(part.status().code() == ErrorCode::kAborted, "the old one did not end");
    expect_members(comm, self, all_but({}));
  });
}

// All stand between two collectives, or some have begun another one.
TEST_P(ShrinkOfThreads, AgreesOnWhereTheCollectivesEnded) {
  for (const int beginners : {0, 1, kRanks}) {
    SCOPED_TRACE(std::to_string(beginners) + " have begun another one");
    run_ranks(kRanks, GetParam(), [&](Communicator& comm) {
      Communicator part = comm.duplicate();
      EXPECT_EQ(part.parent_failed_in().number, -1);
      for (int i = 0; i < 3; ++i) part.barrier();
      int value = 1;
      Request begun;
      if (comm.rank() < beginners && comm.rank() != 1) {
        begun = part.all_reduce_async(&value, &value, 1, DataType::kInt32, ops::sum);
      }
      comm.barrier();
      if (comm.rank() == 1) part.abort("no more");
      EXPECT_TRUE(eventually([&] { return !part.status().ok(); }));
      Communicator left = part.shrink();
      EXPECT_EQ(left.parent_failed_in().number, 3);
      EXPECT_EQ(left.parent_failed_in().had_begun, beginners > 0);
      EXPECT_EQ(left.duplicate().parent_failed_in().number, -1);
      comm.barrier();
    });
  }
}

// Of a broadcast that has ended on its root, and that the others have not called.
TEST_P(ShrinkOfThreads, AgreesOnTheLeastOfWhereItsRanksStood) {
  run_ranks(kRanks, GetParam(), [](Communicator& comm) {
    Communicator part = comm.duplicate();
    for (int i = 0; i < 3; ++i) part.barrier();
    int value = 1;
    if (comm.rank() == 0) part.broadcast(&value, 1, DataType::kInt32, 0);
    comm.barrier();
    if (comm.rank() == 1) part.abort("no more");
    EXPECT_TRUE(eventually([&] { return !part.status().ok(); }));
    try {
      part.barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.failed_in().number, comm.rank() == 0 ? 4 : 3);
    }
    const Communicator left = part.shrink();
    EXPECT_EQ(left.parent_failed_in().number, 3);
    EXPECT_TRUE(left.parent_failed_in().had_begun);
    comm.barrier();
  });
}

TEST_P(ShrinkOfThreads, LeavesNothingBehind) {
  run_ranks(kRanks, GetParam(), [](Communicator& comm) {
    std::ptrdiff_t before = 0;
    for (int round = 0; round < 20; ++round) {
      Communicator part = comm.duplicate();
      Communicator left = part.shrink();
      left.barrier();
      left.close();
      part.close();
      comm.barrier();
      // Looking takes one itself.
      if (comm.rank() == 0 && round == 1) before = open_descriptors();
      comm.barrier();
    }
    // Those of an arbiter before this one may have been open still.
    if (comm.rank() == 0) {
      require(eventually([&] { return open_descriptors() <= before; }), "descriptors are left");
    }
    comm.barrier();
  });
}

TEST(Shrink, OfAWorldOfOneIsThatRank) {
  Communicator comm = init({.rendezvous = "alone://"});
  Communicator left = comm.shrink();
  EXPECT_EQ(comm.status().code(), ErrorCode::kAborted);
  expect_members(left, 0, {0});
}

TEST(Shrink, OfAClosedCommunicatorIsRefused) {
  Communicator comm = init({.rendezvous = "alone://"});
  comm.close();
  EXPECT_EQ(outcome_of([&] { comm.shrink(); }).code, ErrorCode::kClosed);
}

INSTANTIATE_TEST_SUITE_P(Transports, ShrinkOfThreads, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Transports, ShrinkOfProcesses,
                         testing::ValuesIn(tested_transports_but({"loopback", "shm"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
