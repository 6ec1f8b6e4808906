// A process is killed while the streams of the others wait for its GPU work: every survivor's
// stream goes on, every call ends with kRankFailed and names the one that was killed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <thread>

#include "tests/cuda/device_user.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

constexpr int kRanks = 3;

[[noreturn]] void die(OutcomeBoard& board) {
  board.killed_at_ns = now_ns();
  kill(getpid(), SIGKILL);
  std::abort();
}

// Calls until it hears of the death, then looks whether its stream is stuck.
void survive(Communicator& comm, OutcomeBoard& board, DeviceUser& user, std::size_t count) {
  const auto self = static_cast<std::size_t>(comm.rank());
  float* const data = user.make<float>(std::vector<float>(count, 1.0F));
  ++board.entered;
  board.blocking[self] = outcome_of([&] {
    for (;;) {
      comm.all_reduce(data, data, count, DataType::kFloat32, ops::max, {.stream = user.stream()});
    }
  });
  user.finish();
  board.later[self] = outcome_of([&] {
    comm.all_reduce(data, data, count, DataType::kFloat32, ops::max, {.stream = user.stream()});
  });
}

// `devices`: {0} for ranks that reach each other's memory, {} for such as take host memory.
void run_doomed(const std::vector<int>& devices, std::size_t count, Rank victim) {
  SharedBoard board;
  if (fake() != nullptr) cuda::register_kernel_twins(*fake());
  try {
    spawn(kRanks,
          [&](Communicator& comm) {
            DeviceUser user;
            if (comm.rank() != victim) return survive(comm, *board.operator->(), user, count);
            float* const data = user.make<float>(std::vector<float>(count, 1.0F));
            for (int i = 0; i < 3; ++i) {
              comm.all_reduce(data, data, count, DataType::kFloat32, ops::max,
                              {.stream = user.stream()});
            }
            die(*board.operator->());
          },
          {.as = SpawnOptions::As::kProcesses, .timeout = kCallTimeout, .devices = devices});
    ADD_FAILURE() << "nobody died";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    EXPECT_EQ(error.rank(), victim) << error.what();
  }
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    const auto index = static_cast<std::size_t>(rank);
    for (const Outcome& outcome : {board->blocking[index], board->later[index]}) {
      EXPECT_TRUE(outcome.written) << "rank " << rank << " heard nothing, or its stream is stuck";
      EXPECT_EQ(outcome.code, ErrorCode::kRankFailed) << outcome.message;
      EXPECT_EQ(outcome.rank, victim) << outcome.message;
    }
  }
}

TEST(DeviceKill, OfARankWhoseMemoryIsMappedIsToldToAllSurvivors) {
  for (const Rank victim : {0, 1, 2}) {
    run_doomed({0}, 16, victim);
    run_doomed({0}, 300'000, victim);
  }
}

// Rank 0 cannot map what the victim told it of in their exchange, as when that has died before.
TEST(DeviceKill, BetweenTheExchangeAndTheMappingIsNotTheMappersFault) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver, which refuses to map";
  cuda::register_kernel_twins(*fake());
  SharedBoard board;
  try {
    spawn(2,
          [&](Communicator& comm) {
            DeviceUser user;
            float* const data = user.make<float>(std::vector<float>(16, 1.0F));
            const auto call = [&] {
              comm.all_reduce(data, data, 16, DataType::kFloat32, ops::max,
                              {.stream = user.stream()});
              user.finish();
            };
            if (comm.rank() == 1) {
              comm.all_reduce(data, data, 16, DataType::kFloat32, ops::max,
                              {.stream = user.stream()});
              require(eventually([&] { return board->entered > 0; }), "rank 0 has not asked");
              die(*board.operator->());
            }
            fake()->fail("cuIpcOpenMemHandle", 1, CUDA_ERROR_INVALID_VALUE);
            std::thread watcher([&] {
              const auto asked = [] { return fake()->calls("cuIpcOpenMemHandle") > 0; };
              if (eventually(asked)) ++board->entered;
            });
            board->blocking[0] = outcome_of(call);
            board->later[0] = outcome_of(call);
            watcher.join();
          },
          {.as = SpawnOptions::As::kProcesses, .timeout = kCallTimeout, .devices = {0}});
    ADD_FAILURE() << "nobody died";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    EXPECT_EQ(error.rank(), 1) << error.what();
  }
  EXPECT_EQ(board->entered, 1) << "nothing was to be mapped";
  // The blocking call was in its stream, or not, when it was told.
  if (board->blocking[0].written) {
    EXPECT_EQ(board->blocking[0].rank, 1);
  }
  EXPECT_TRUE(board->later[0].written);
  EXPECT_EQ(board->later[0].code, ErrorCode::kRankFailed) << board->later[0].message;
  EXPECT_EQ(board->later[0].rank, 1) << board->later[0].message;
}

TEST(DeviceKill, OfARankThatTakesHostMemoryIsToldToAllSurvivors) {
  for (const Rank victim : {0, 2}) {
    run_doomed({}, 16, victim);
    run_doomed({}, 300'000, victim);
  }
}

}  // namespace
}  // namespace unisono::test
