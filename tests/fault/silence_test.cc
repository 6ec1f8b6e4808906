// Ranks that are stopped and neither die nor answer: they are named, rank 0 as well, whose process
// holds the arbiter; and a job that is stopped as a whole goes on as if nothing had happened.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fault/outcome_board.h"
#include "tests/fault/role_report.h"
#include "tests/support/child_process.h"
#include "tests/support/rank_job.h"
#include "tests/support/setting.h"
#include "tests/support/try_limits.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using std::chrono::milliseconds;

constexpr int kStopRanks = 4;

// Who gets no processor for so long is taken for silent, too. A sanitizer slows processes down.
void try_silences(const std::function<void(milliseconds)>& round) {
  if (is_sanitized()) return try_limits({milliseconds(3000), milliseconds(6000)}, round);
  try_limits({milliseconds(1000), milliseconds(3000)}, round);
}

std::string text_of(milliseconds limit) { return std::to_string(limit.count()) + "ms"; }

// What outlives a failure: a barrier of those that go on, without a communicator.
void meet_again(OutcomeBoard& board, int count) {
  ++board.entered;
  if (!eventually([&] { return board.entered >= count; })) throw std::runtime_error("hung");
}

Outcome barriers_until_end(Communicator& comm) {
  return outcome_of([&] {
    for (;;) comm.barrier();
  });
}

// Who stayed stopped would be waited for for ever.
void wake_all(const OutcomeBoard& board) {
  for (const auto& pid : board.pids) {
    if (pid > 0) kill(pid, SIGCONT);
  }
}

class Silenced : public testing::TestWithParam<std::string> {
 protected:
  // Each with a board of its own.
  void rounds(const std::function<void(milliseconds)>& round) {
    try_silences([&](milliseconds limit) {
      const Setting silence("UNISONO_SILENCE", text_of(limit));
      SharedBoard board;
      board_ = board.operator->();
      round(limit);
    });
  }
  void run(const std::function<void(Communicator&)>& body) {
    const auto body_or_end = [&](Communicator& comm) {
      try {
        body(comm);
      } catch (...) {
        wake_all(*board_);
        throw;
      }
    };
    try {
      spawn(kStopRanks, body_or_end,
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
  OutcomeBoard* board_ = nullptr;
};

TEST_P(Silenced, RankZeroIsNamedToAllAndLearnsThatTheJobWentOn) {
  rounds([&](milliseconds) {
    run([&](Communicator& comm) {
      const auto self = static_cast<std::size_t>(comm.rank());
      Communicator rest = comm.split(comm.rank() == 0 ? 0 : 1);
      board_->pids[self] = getpid();
      meet_again(*board_, kStopRanks);
      if (comm.rank() == 0) kill(getpid(), SIGSTOP);
      board_->blocking[self] = barriers_until_end(comm);
      if (comm.rank() == 0) return;
      // Other deaths are told all the same.
      for (int i = 0; i < 3; ++i) rest.barrier();
      meet_again(*board_, kStopRanks + 3);
      if (comm.rank() == 3) {
        kill(getpid(), SIGKILL);
        std::abort();
      }
      board_->pending[self] = barriers_until_end(rest);
      meet_again(*board_, kStopRanks + 5);
      if (comm.rank() == 1) kill(board_->pids[0], SIGCONT);
    });
    for (const int rank : {1, 2, 3})
      expect_named(board_->blocking[rank], 0, rank, "its process is stopped");
    for (const int rank : {1, 2}) expect_named(board_->pending[rank], 2, rank, "rank 3");
    expect_named(board_->blocking[0], 0, 0, "the job went on without it");
  });
}

TEST_P(Silenced, AnotherRankIsNamedToAllAndItself) {
  rounds([&](milliseconds) {
    run([&](Communicator& comm) {
      const auto self = static_cast<std::size_t>(comm.rank());
      board_->pids[self] = getpid();
      meet_again(*board_, kStopRanks);
      if (comm.rank() == 2) kill(getpid(), SIGSTOP);
      board_->blocking[self] = barriers_until_end(comm);
      if (comm.rank() == 2) {
        ++board_->finished;
        return;
      }
      meet_again(*board_, kStopRanks + 3);
      if (comm.rank() == 0) kill(board_->pids[2], SIGCONT);
      // The arbiter lives until the one that was stopped has heard of it.
      if (!eventually([&] { return board_->finished == 1; })) throw std::runtime_error("hung");
    });
    for (const int rank : {0, 1, 2, 3})
      expect_named(board_->blocking[rank], 2, rank, "its process is stopped");
  });
}

TEST_P(Silenced, RankZeroAndTheFirstStandbyAtOnce) {
  rounds([&](milliseconds) {
    run([&](Communicator& comm) {
      const auto self = static_cast<std::size_t>(comm.rank());
      Communicator rest = comm.split(comm.rank() < 2 ? 0 : 1);
      board_->pids[self] = getpid();
      meet_again(*board_, kStopRanks);
      if (comm.rank() < 2) {
        kill(getpid(), SIGSTOP);
        return;
      }
      board_->blocking[self] = barriers_until_end(comm);
      for (int i = 0; i < 3; ++i) rest.barrier();
      meet_again(*board_, kStopRanks + 2);
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
  });
}

// Stops all ranks for longer than anybody may be silent, twice.
[[noreturn]] void stop_all_twice(OutcomeBoard& board, milliseconds limit) {
  const bool ready = eventually([&] { return board.entered == kStopRanks; });
  for (int round = 0; ready && round < 2; ++round) {
    for (const auto& pid : board.pids) {
      if (pid > 0) kill(pid, SIGSTOP);
    }
    std::this_thread::sleep_for(2 * limit);
    wake_all(board);
    // Whoever suspects somebody does so within the next period.
    std::this_thread::sleep_for(2 * limit);
  }
  board.finished = 1;
  _exit(ready ? 0 : 1);
}

TEST_P(Silenced, AJobThatIsStoppedAsAWholeSuspectsNobody) {
  rounds([&](milliseconds limit) {
    const pid_t stopper = fork();
    if (stopper == 0) stop_all_twice(*board_, limit);
    spawn_processes(kStopRanks, GetParam(), [&](Communicator& comm) {
      const auto self = static_cast<std::size_t>(comm.rank());
      board_->pids[self] = getpid();
      ++board_->entered;
      board_->blocking[self] = outcome_of([&] {
        for (int over = 0; over == 0;) {
          over = board_->finished;
          comm.broadcast(&over, 1, DataType::kInt32, 0, {.timeout = 3 * kCallTimeout});
        }
      });
    });
    int status = -1;
    EXPECT_EQ(waitpid(stopper, &status, 0), stopper);
    EXPECT_EQ(status, 0) << "not all ranks were there to be stopped";
    for (int rank = 0; rank < kStopRanks; ++rank) {
      EXPECT_FALSE(board_->blocking[rank].written) << board_->blocking[rank].message;
    }
  });
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

class Gathering : public testing::TestWithParam<bool> {
 protected:
  ChildProcess start(int rank, int port, milliseconds limit) const {
    std::vector<std::string> environment = {"RANK=" + std::to_string(rank),
                                            "WORLD_SIZE=3",
                                            "LOCAL_RANK=" + std::to_string(rank),
                                            "LOCAL_WORLD_SIZE=3",
                                            "MASTER_ADDR=127.0.0.1",
                                            "MASTER_PORT=" + std::to_string(port),
                                            "UNISONO_TIMEOUT=60s",
                                            "UNISONO_LOG=debug",
                                            "UNISONO_SILENCE=" + text_of(limit),
                                            "UNISONO_JOB_KEY=a key that all ranks know"};
    if (GetParam()) {
      environment.push_back("UNISONO_RENDEZVOUS=tcp://127.0.0.1:" + std::to_string(port));
    }
    return ChildProcess("meet_others", environment);
  }
  static void await_both(ChildProcess& second) {
    EXPECT_TRUE(second.prints("rank 1 has reached rank 0")) << second.output();
  }
};

// Ranks 0 and 1 of three wait for the last one.
TEST_P(Gathering, ARankZeroThatIsStoppedIsNamed) {
  try_silences([&](milliseconds limit) {
    const int port = free_port();
    ChildProcess first = start(0, port, limit), second = start(1, port, limit);
    await_both(second);
    first.kill(SIGSTOP);
    EXPECT_EQ(second.wait(), kFailed) << second.output();
    EXPECT_THAT(second.output(),
                AllOf(HasSubstr("failed with rank failed"), HasSubstr("rank at fault: 0"),
                      HasSubstr("is silent"), HasSubstr("its process is stopped")));
    first.kill(SIGCONT);
    EXPECT_EQ(first.wait(), kFailed) << first.output();
    EXPECT_THAT(first.output(), HasSubstr("rank at fault: 1"));
  });
}

TEST_P(Gathering, WhenAllAreStoppedSuspectsNobody) {
  try_silences([&](milliseconds limit) {
    const int port = free_port();
    ChildProcess first = start(0, port, limit), second = start(1, port, limit);
    await_both(second);
    for (const ChildProcess* each : {&first, &second}) each->kill(SIGSTOP);
    std::this_thread::sleep_for(limit * 3 / 2);
    for (const ChildProcess* each : {&second, &first}) each->kill(SIGCONT);
    // Whoever suspects somebody does so within the next period.
    std::this_thread::sleep_for(limit * 5 / 4);
    ChildProcess last = start(2, port, limit);
    for (ChildProcess* each : {&first, &second, &last})
      EXPECT_EQ(each->wait(), 0) << each->output();
  });
}

INSTANTIATE_TEST_SUITE_P(Places, Gathering, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Tcp" : "Unix"; });

INSTANTIATE_TEST_SUITE_P(Transports, Silenced, testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
