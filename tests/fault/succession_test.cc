// Rank 0, whose process holds the arbiter, dies or leaves, and the job goes on: communicators
// without it work, and every later failure is told to all that are left and names the right rank.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>

#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"
#include "tests/support/try_limits.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

constexpr int kMembers = 5;

[[noreturn]] void die_at_once() {
  kill(getpid(), SIGKILL);
  std::abort();
}

Outcome barriers_until_failure(Communicator& comm) {
  return outcome_of([&] {
    for (;;) comm.barrier();
  });
}

void expect_failure(const Outcome& outcome, ErrorCode code, Rank rank, int of) {
  ASSERT_TRUE(outcome.written) << "rank " << of;
  EXPECT_EQ(outcome.code, code) << "rank " << of << ": " << outcome.message;
  EXPECT_EQ(outcome.rank, rank) << "rank " << of << ": " << outcome.message;
}

class Succession : public testing::TestWithParam<std::string> {
 protected:
  // Ranks of a job of which some are killed.
  void run(const std::function<void(Communicator&)>& body) {
    const SpawnOptions options{
        .as = SpawnOptions::As::kProcesses, .transport = GetParam(), .timeout = 2 * kCallTimeout};
    try {
      spawn(kMembers, body, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    }
  }
  // Until so many have come so far, without a communicator: what a rank has sent that dies next may
  // never arrive.
  void meet(int count) { meet_at(board_->entered, count); }
  static void meet_at(std::atomic<int>& here, int count) {
    ++here;
    if (!eventually([&] { return here >= count; })) throw std::runtime_error("hung");
  }
  SharedBoard board_;
};

TEST_P(Succession, ARankThatDiesAfterRankZeroIsNamedToAll) {
  run([&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    Communicator rest = comm.split(comm.rank() == 0 ? 0 : 1);
    meet(kMembers);
    if (comm.rank() == 0) die_at_once();
    board_->blocking[self] = barriers_until_failure(comm);
    for (int i = 0; i < 3; ++i) rest.barrier();
    meet(kMembers + rest.size());
    if (comm.rank() == 3) die_at_once();
    board_->pending[self] = barriers_until_failure(rest);
  });
  for (const int rank : {1, 2, 4}) {
    expect_failure(board_->blocking[rank], ErrorCode::kRankFailed, 0, rank);
    expect_failure(board_->pending[rank], ErrorCode::kRankFailed, 2, rank);
  }
}

TEST_P(Succession, RanksZeroAndOneMayBothDie) {
  run([&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    Communicator rest = comm.split(comm.rank() < 2 ? 0 : 1);
    meet(kMembers);
    if (comm.rank() < 2) die_at_once();
    board_->blocking[self] = barriers_until_failure(comm);
    for (int i = 0; i < 3; ++i) rest.barrier();
    meet(kMembers + rest.size());
    if (comm.rank() == 4) die_at_once();
    board_->pending[self] = barriers_until_failure(rest);
  });
  EXPECT_EQ(board_->blocking[2].rank, board_->blocking[3].rank) << "all say the same";
  for (const int rank : {2, 3}) {
    EXPECT_LT(board_->blocking[rank].rank, 2) << board_->blocking[rank].message;
    expect_failure(board_->pending[rank], ErrorCode::kRankFailed, 2, rank);
  }
}

// Those who come do so at the same time: who is late would be named as well.
TEST_P(Succession, ADeadlineAfterRankZeroDiedNamesTheRankThatDidNotCome) {
  using std::chrono::milliseconds;
  try_limits({milliseconds(600), milliseconds(3000), milliseconds(8000)}, [&](milliseconds limit) {
    std::construct_at(&*board_);
    run([&](Communicator& comm) {
      const auto self = static_cast<std::size_t>(comm.rank());
      Communicator rest = comm.split(comm.rank() == 0 ? 0 : 1);
      meet(kMembers);
      if (comm.rank() == 0) die_at_once();
      board_->blocking[self] = barriers_until_failure(comm);
      rest.barrier();
      if (comm.rank() == 3) return meet(kMembers + 4);
      meet_at(board_->finished, 3);
      board_->pending[self] = outcome_of([&] { rest.barrier({.timeout = limit}); });
      meet(kMembers + 4);
    });
    for (const int rank : {1, 2, 4}) {
      expect_failure(board_->pending[rank], ErrorCode::kTimeout, 2, rank);
      EXPECT_THAT(std::string(board_->pending[rank].message), HasSubstr("rank 3 had not arrived"));
    }
  });
}

TEST_P(Succession, ARankThatDiesAfterRankZeroLeftIsNamedToAll) {
  run([&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    Communicator rest = comm.split(comm.rank() == 0 ? 0 : 1);
    if (comm.rank() == 0) {
      rest.close();
      return comm.close();
    }
    // Nobody else asks for rank 0 any more: what comes next is told by another arbiter, or by its
    // own if its process still ends.
    for (int i = 0; i < 3; ++i) rest.barrier();
    meet(rest.size());
    if (comm.rank() == 2) die_at_once();
    board_->pending[self] = barriers_until_failure(rest);
  });
  for (const int rank : {1, 3, 4}) {
    expect_failure(board_->pending[rank], ErrorCode::kRankFailed, 1, rank);
  }
}

TEST_P(Succession, TheSurvivorsOfRankZeroShrinkTheirCommunicator) {
  run([&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    meet(kMembers);
    if (comm.rank() == 0) die_at_once();
    board_->blocking[self] = barriers_until_failure(comm);
    Communicator rest = comm.shrink();
    rest.barrier();
    meet(kMembers + rest.size());
    if (comm.rank() == 4) die_at_once();
    board_->pending[self] = barriers_until_failure(rest);
    Communicator last = rest.shrink();
    board_->finished += last.size();
    last.barrier();
  });
  for (const int rank : {1, 2, 3}) {
    expect_failure(board_->pending[rank], ErrorCode::kRankFailed, 3, rank);
  }
  EXPECT_EQ(board_->finished, 9) << "three ranks of three";
}

// By shared memory nobody sees a death but the arbiter; over TCP the links break as well.
INSTANTIATE_TEST_SUITE_P(Transports, Succession, testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
