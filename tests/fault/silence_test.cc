// Ranks that are stopped and neither die nor answer: they are named, rank 0 as well, whose process
// holds the arbiter; and a job that is stopped as a whole goes on as if nothing had happened.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/fault/outcome_board.h"
#include "tests/fault/role_report.h"
#include "tests/support/child_process.h"
#include "tests/support/rank_job.h"
#include "tests/support/setting.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Long enough for processes that a sanitizer slows down.
constexpr std::chrono::milliseconds kLimit{is_sanitized() ? 3000 : 1000};
constexpr int kStopRanks = 4;

// What outlives a failure: a barrier of those that go on, without a communicator.
void meet_again(SharedBoard& board, int count) {
  ++board->entered;
  if (!eventually([&] { return board->entered >= count; })) throw std::runtime_error("hung");
}

Outcome barriers_until_end(Communicator& comm) {
  return outcome_of([&] {
    for (;;) comm.barrier();
  });
}

class Silenced : public testing::TestWithParam<std::string> {
 protected:
  void run(const std::function<void(Communicator&)>& body) {
    try {
      spawn(kStopRanks, body,
            {.as = SpawnOptions::As::kProcesses,
             .transport = GetParam(),
             .timeout = 2 * kCallTimeout});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    }
  }
  void expect_named(const Outcome& outcome, Rank rank, int by, const std::string& words) {
    ASSERT_TRUE(outcome.written) << "by rank " << by;
    EXPECT_EQ(outcome.code, ErrorCode::kRankFailed) << outcome.message;
    EXPECT_EQ(outcome.rank, rank) << "by rank " << by << ": " << outcome.message;
    EXPECT_THAT(std::string(outcome.message), HasSubstr(words)) << "by rank " << by;
  }
  const Setting silence_{"UNISONO_SILENCE", std::to_string(kLimit.count()) + "ms"};
  SharedBoard board_;
};

TEST_P(Silenced, RankZeroIsNamedToAllAndLearnsThatTheJobWentOn) {
  run([&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    Communicator rest = comm.split(comm.rank() == 0 ? 0 : 1);
    board_->pids[self] = getpid();
    meet_again(board_, kStopRanks);
    if (comm.rank() == 0) kill(getpid(), SIGSTOP);
    board_->blocking[self] = barriers_until_end(comm);
    if (comm.rank() == 0) return;
    // Other deaths are told all the same.
    for (int i = 0; i < 3; ++i) rest.barrier();
    meet_again(board_, kStopRanks + 3);
    if (comm.rank() == 3) {
      kill(getpid(), SIGKILL);
      std::abort();
    }
    board_->pending[self] = barriers_until_end(rest);
    meet_again(board_, kStopRanks + 5);
    if (comm.rank() == 1) kill(board_->pids[0], SIGCONT);
  });
  for (const int rank : {1, 2, 3})
    expect_named(board_->blocking[rank], 0, rank, "its process is stopped");
  for (const int rank : {1, 2}) expect_named(board_->pending[rank], 2, rank, "rank 3");
  expect_named(board_->blocking[0], 0, 0, "the job went on without it");
}

TEST_P(Silenced, AnotherRankIsNamedToAllAndItself) {
  run([&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    board_->pids[self] = getpid();
    meet_again(board_, kStopRanks);
    if (comm.rank() == 2) kill(getpid(), SIGSTOP);
    board_->blocking[self] = barriers_until_end(comm);
    if (comm.rank() == 2) {
      ++board_->finished;
      return;
    }
    meet_again(board_, kStopRanks + 3);
    if (comm.rank() == 0) kill(board_->pids[2], SIGCONT);
    // The arbiter lives until the one that was stopped has heard of it.
    if (!eventually([&] { return board_->finished == 1; })) throw std::runtime_error("hung");
  });
  for (const int rank : {0, 1, 2, 3})
    expect_named(board_->blocking[rank], 2, rank, "its process is stopped");
}

TEST_P(Silenced, RankZeroAndTheFirstStandbyAtOnce) {
  run([&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    Communicator rest = comm.split(comm.rank() < 2 ? 0 : 1);
    board_->pids[self] = getpid();
    meet_again(board_, kStopRanks);
    if (comm.rank() < 2) {
      kill(getpid(), SIGSTOP);
      return;
    }
    board_->blocking[self] = barriers_until_end(comm);
    for (int i = 0; i < 3; ++i) rest.barrier();
    meet_again(board_, kStopRanks + 2);
    if (comm.rank() == 2) {
      for (const int stopped : {0, 1}) kill(board_->pids[stopped], SIGCONT);
    }
  });
  EXPECT_EQ(board_->blocking[2].rank, board_->blocking[3].rank) << "all say the same";
  for (const int rank : {2, 3}) {
    ASSERT_TRUE(board_->blocking[rank].written);
    EXPECT_EQ(board_->blocking[rank].code, ErrorCode::kRankFailed);
    EXPECT_LT(board_->blocking[rank].rank, 2) << board_->blocking[rank].message;
  }
}

// Stops all ranks for longer than anybody may be silent, twice.
[[noreturn]] void stop_all_twice(OutcomeBoard& board) {
  const bool ready = eventually([&] { return board.entered == kStopRanks; });
  for (int round = 0; ready && round < 2; ++round) {
    for (const auto& pid : board.pids) {
      if (pid > 0) kill(pid, SIGSTOP);
    }
    usleep(static_cast<useconds_t>(2 * kLimit.count() * 1000));
    for (const auto& pid : board.pids) {
      if (pid > 0) kill(pid, SIGCONT);
    }
    // Whoever suspects somebody does so within the next period.
    usleep(static_cast<useconds_t>(2 * kLimit.count() * 1000));
  }
  board.finished = 1;
  _exit(ready ? 0 : 1);
}

TEST_P(Silenced, AJobThatIsStoppedAsAWholeSuspectsNobody) {
  const pid_t stopper = fork();
  if (stopper == 0) stop_all_twice(*board_.operator->());
  spawn_processes(kStopRanks, GetParam(), [&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    board_->pids[self] = getpid();
    ++board_->entered;
    board_->blocking[self] = outcome_of([&] {
      for (int over = 0; over == 0;) {
        over = board_->finished;
        comm.broadcast(&over, 1, DataType::kInt32, 0);
      }
    });
  });
  int status = -1;
  EXPECT_EQ(waitpid(stopper, &status, 0), stopper);
  EXPECT_EQ(status, 0) << "not all ranks were there to be stopped";
  for (int rank = 0; rank < kStopRanks; ++rank) {
    EXPECT_FALSE(board_->blocking[rank].written) << board_->blocking[rank].message;
  }
}

// ---- Before all have met ------------------------------------------------------------------

int meet_others() {
  try {
    Communicator comm = init();
    comm.barrier();
    return 0;
  } catch (const Error& error) {
    std::printf("rank at fault: %d\n", error.rank());
    return report(error);
  }
}
const RoleEntry meet_entry("meet_others", &meet_others);

/// Ranks 0 and 1 of three, which wait for the last one.
class Gathering : public testing::TestWithParam<bool> {
 protected:
  ChildProcess start(int rank) const {
    std::vector<std::string> environment = {
        "RANK=" + std::to_string(rank),
        "WORLD_SIZE=3",
        "LOCAL_RANK=" + std::to_string(rank),
        "LOCAL_WORLD_SIZE=3",
        "MASTER_ADDR=127.0.0.1",
        "MASTER_PORT=" + std::to_string(port_),
        "UNISONO_TIMEOUT=60s",
        "UNISONO_LOG=debug",
        "UNISONO_SILENCE=" + std::to_string(kLimit.count()) + "ms",
        "UNISONO_JOB_KEY=a key that all ranks know"};
    if (GetParam()) {
      environment.push_back("UNISONO_RENDEZVOUS=tcp://127.0.0.1:" + std::to_string(port_));
    }
    return ChildProcess("meet_others", environment);
  }
  void await_both() {
    EXPECT_TRUE(second_.prints("rank 1 has reached rank 0")) << second_.output();
  }

  const int port_ = free_port();
  ChildProcess first_ = start(0), second_ = start(1);
};

TEST_P(Gathering, ARankZeroThatIsStoppedIsNamed) {
  await_both();
  first_.kill(SIGSTOP);
  EXPECT_EQ(second_.wait(), kFailed) << second_.output();
  EXPECT_THAT(second_.output(),
              AllOf(HasSubstr("failed with rank failed"), HasSubstr("rank at fault: 0"),
                    HasSubstr("is silent"), HasSubstr("its process is stopped")));
  first_.kill(SIGCONT);
  EXPECT_EQ(first_.wait(), kFailed) << first_.output();
  EXPECT_THAT(first_.output(), HasSubstr("rank at fault: 1"));
}

TEST_P(Gathering, WhenAllAreStoppedSuspectsNobody) {
  await_both();
  for (const ChildProcess* each : {&first_, &second_}) each->kill(SIGSTOP);
  std::this_thread::sleep_for(kLimit * 3 / 2);
  for (const ChildProcess* each : {&second_, &first_}) each->kill(SIGCONT);
  // Whoever suspects somebody does so within the next period.
  std::this_thread::sleep_for(kLimit * 5 / 4);
  ChildProcess last = start(2);
  for (ChildProcess* each : {&first_, &second_, &last})
    EXPECT_EQ(each->wait(), 0) << each->output();
}

INSTANTIATE_TEST_SUITE_P(Places, Gathering, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Tcp" : "Unix"; });

INSTANTIATE_TEST_SUITE_P(Transports, Silenced, testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
