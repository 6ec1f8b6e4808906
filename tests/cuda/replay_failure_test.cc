// Replays of graphs whose peers do not come: a process that is killed, an abort, a rank that has
// left. Every stream goes on, and the communicator's status says why before it does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>

#include "tests/cuda/device_graph.h"
#include "tests/cuda/device_user.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/cuda/odd_world.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCount = 3000;  // every rank has a slice

// An all_reduce in a graph, and where it stands.
class Replays {
 public:
  explicit Replays(Communicator& comm)
      : comm_(comm),
        data_(user_.make(std::vector<float>(kCount, static_cast<float>(comm.rank())))) {
    graph_ = std::make_unique<DeviceGraph>(user_.stream(), [&] { call(); });
  }
  void call() {
    comm_.all_reduce(data_, data_, kCount, DataType::kFloat32, ops::max,
                     {.stream = user_.stream()});
  }
  void launch(int times) {
    for (int i = 0; i < times; ++i) graph_->launch(user_.stream());
  }
  void finish() { user_.finish(); }
  CUstream stream() const { return user_.stream(); }
  bool has_result() {
    const auto largest = static_cast<float>(comm_.size() - 1);
    return user_.look(data_, kCount) == std::vector<float>(kCount, largest);
  }

 private:
  Communicator& comm_;
  DeviceUser user_;
  float* data_;
  std::unique_ptr<DeviceGraph> graph_;
};

Outcome outcome_of_status(const Communicator& comm) {
  Outcome outcome;
  if (const Status status = comm.status(); !status.ok()) outcome.set(Error(status));
  return outcome;
}

// A stream that went on without its peer, and why; then one that is launched too late to wait.
void survive(Communicator& comm, OutcomeBoard& board) {
  const auto self = static_cast<std::size_t>(comm.rank());
  Replays replays(comm);
  replays.launch(6);
  ++board.entered;
  replays.finish();
  board.blocking[self] = outcome_of_status(comm);
  replays.launch(2);
  replays.finish();
  board.later[self] = outcome_of([&] { replays.call(); });
}

void expect_outcomes(const OutcomeBoard& board, Rank failed_rank, ErrorCode code,
                     const char* words) {
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == failed_rank) continue;
    const auto index = static_cast<std::size_t>(rank);
    for (const Outcome& outcome : {board.blocking[index], board.later[index]}) {
      EXPECT_TRUE(outcome.written) << "rank " << rank << " heard nothing, or its stream is stuck";
      EXPECT_EQ(outcome.code, code) << outcome.message;
      EXPECT_EQ(outcome.rank, failed_rank) << outcome.message;
      EXPECT_NE(std::strstr(outcome.message, words), nullptr) << outcome.message;
    }
  }
}

// What the failed rank does when it has taken part in `replays` replays and the others are in more.
void run_doomed(Rank failed_rank, int replays, ErrorCode code, const char* words,
                const std::function<void(Communicator&)>& fault) {
  SharedBoard board;
  OutcomeBoard& shared = *board.operator->();
  if (fake() != nullptr) cuda::register_kernel_twins(*fake());
  try {
    spawn(kRanks,
          [&](Communicator& comm) {
            if (comm.rank() != failed_rank) return survive(comm, shared);
            Replays mine(comm);
            mine.launch(replays);
            mine.finish();
            require(eventually([&] { return shared.entered == kRanks - 1; }),
                    "the survivors have not entered");
            fault(comm);
          },
          {.as = SpawnOptions::As::kProcesses, .timeout = kCallTimeout, .devices = {0}});
  } catch (const Error&) {
    // What the survivors heard is looked at below.
  }
  expect_outcomes(shared, failed_rank, code, words);
}

TEST(DeviceReplayFailure, AKilledPeerEndsTheWaitAndIsNamed) {
  for (const Rank victim : {0, 1, 2}) {
    for (const int replays : {0, 3}) {
      run_doomed(victim, replays, ErrorCode::kRankFailed, "", [](Communicator&) {
        kill(getpid(), SIGKILL);
        std::abort();
      });
    }
  }
}

TEST(DeviceReplayFailure, AnAbortEndsTheWaitOnAllRanks) {
  for (const Rank failed_rank : {0, 2}) {
    run_doomed(failed_rank, 2, ErrorCode::kAborted, "enough",
               [](Communicator& comm) { comm.abort("enough"); });
  }
}

TEST(DeviceReplayFailure, ARankThatHasLeftEndsTheWaitAndIsNamed) {
  run_doomed(1, 2, ErrorCode::kRankLeft, "is needed by a replay of a CUDA graph",
             [](Communicator& comm) { comm.close(); });
}

// The rank that aborts is in a replay itself, and another thread of it aborts.
TEST(DeviceReplayFailure, AnAbortEndsTheOwnWaitToo) {
  DeviceJob job{.ranks = 2, .processes = true};
  run_device_ranks(job, [](Communicator& comm) {
    Communicator doomed = comm.split(0, comm.rank());
    Replays replays(doomed);
    if (comm.rank() == 0) replays.launch(3);
    comm.barrier();
    if (comm.rank() == 0) doomed.abort("enough");
    replays.finish();
    require(eventually([&] { return !doomed.status().ok(); }), "the abort is not known");
    require(doomed.status().code() == ErrorCode::kAborted, doomed.status().message());
    replays.launch(2);
    replays.finish();
    comm.barrier();
  });
}

// The streams of a rank that aborts run through: whoever meets them must not take that for a
// result.
TEST(DeviceReplayFailure, WhatAnAbortedRankHasLeftOutIsNeverAResult) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  DeviceJob job{.ranks = 2, .processes = true};
  run_device_ranks(job, [](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      Communicator doomed = comm.split(0, comm.rank());
      Replays replays(doomed);
      {
        HeldStream held(replays.stream());
        replays.launch(1);
        comm.barrier();
        if (comm.rank() == 1) doomed.abort("enough");
      }
      replays.finish();
      const bool failed = !doomed.status().ok();
      require(failed || replays.has_result(), "a wrong result that nobody tells of");
      require(comm.rank() == 0 || failed, "the rank that aborted does not know it");
      comm.barrier();
    }
  });
}

// That a peer has gone is no failure of replays that have all they need of it.
TEST(DeviceReplayFailure, RanksMayLeaveAsSoonAsTheirOwnReplaysAreOver) {
  DeviceJob job{.ranks = 3, .processes = true};
  run_device_ranks(job, [](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      Communicator part = comm.split(0, comm.rank());
      Replays replays(part);
      replays.launch(5);
      replays.finish();
      const Status status = part.status();
      require(status.ok(), status.message());
      part.close();
    }
  });
}

}  // namespace
}  // namespace unisono::test
