// A process is killed in the middle of its backward pass.
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "tests/support/shared.h"
#include "tests/train/ddp/ddp_world.h"

namespace unisono::test {
namespace {

constexpr int kRanks = 3;
constexpr Rank kVictim = 1;

// Shared with the forked ranks: what each survivor was told.
struct Board {
  int failed_rank[kRanks] = {-2, -2, -2};
  char words[kRanks][300] = {};
};

class Kill : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Kill, testing::Values("shm", "tcp"));

TEST_P(Kill, SurvivorsEndWithTheNameOfTheDead) {
  Shared<Board> board;
  const auto body = [&](Communicator& comm) {
    ToyModel model({.counts = {3, 5000, 70'000}});
    train::DistributedDataParallel ddp(model, comm,
                                       {.bucket_bytes_max = 0, .first_bucket_bytes = 0});
    train_with(ddp, 2, 1e-6F);
    model.before_gradient = [&](int parameter) {
      if (comm.rank() == kVictim && parameter == 1) kill(getpid(), SIGKILL);
    };
    try {
      train_with(ddp, 1, 1e-6F);
    } catch (const Error& error) {
      board->failed_rank[comm.rank()] = error.rank();
      std::snprintf(board->words[comm.rank()], sizeof board->words[0], "%s", error.what());
    }
  };
  try {
    spawn(kRanks, body,
          {.as = SpawnOptions::As::kProcesses, .transport = GetParam(), .timeout = kCallTimeout});
    ADD_FAILURE() << "the death of rank " << kVictim << " went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.rank(), kVictim) << error.what();
  }
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_EQ(board->failed_rank[rank], kVictim) << "rank " << rank << ": " << board->words[rank];
  }
}

}  // namespace
}  // namespace unisono::test
