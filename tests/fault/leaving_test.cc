// Ranks that leave: what they have given counts, and who needs more of them is told so.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "base/grace_periods.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

class Leaving : public testing::TestWithParam<std::string> {};

TEST_P(Leaving, ARankThatLeftIsNamedByCallsThatNeedIt) {
  for (const std::size_t count : {4ul, 200'000ul}) {
    std::atomic<bool> left{false};
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      std::vector<float> data(count, 1.0f);
      comm.all_reduce(data, ops::sum);
      if (comm.rank() == 1) {
        comm.close();
        left = true;
        return;
      }
      EXPECT_TRUE(eventually([&] { return left.load(); }));
      const Outcome outcome = outcome_of([&] { comm.all_reduce(data, ops::sum); });
      ASSERT_TRUE(outcome.written);
      EXPECT_EQ(outcome.code, ErrorCode::kRankLeft) << outcome.message;
      EXPECT_EQ(outcome.rank, 1) << outcome.message;
    });
  }
}

TEST_P(Leaving, ARankThatNeverSpokeAndLeftIsNamedToo) {
  std::atomic<bool> left{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.close();
      left = true;
      return;
    }
    EXPECT_TRUE(eventually([&] { return left.load(); }));
    int value = 0;
    const Outcome outcome = outcome_of([&] { comm.receive(&value, 1, DataType::kInt32, 1); });
    EXPECT_EQ(outcome.code, ErrorCode::kRankLeft) << outcome.message;
    EXPECT_EQ(outcome.rank, 1) << outcome.message;
  });
}

TEST_P(Leaving, ARankThatLeftIsNamedBySendsToIt) {
  for (const std::size_t count : {0ul, 1ul, 200'000ul}) {
    std::atomic<bool> left{false};
    run_ranks(2, GetParam(), [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 1) {
        comm.close();
        left = true;
        return;
      }
      EXPECT_TRUE(eventually([&] { return left.load(); }));
      const std::vector<int> data(count, 7);
      // What was sent before the goodbye has been heard of counts as sent.
      const Outcome outcome = outcome_of([&] {
        for (;;) comm.send(data.data(), count, DataType::kInt32, 1);
      });
      EXPECT_EQ(outcome.code, ErrorCode::kRankLeft) << outcome.message;
      EXPECT_EQ(outcome.rank, 1) << outcome.message;
    });
  }
}

TEST_P(Leaving, AReceiveFromAnyRankEndsWhenAllHaveLeft) {
  std::atomic<int> left{0};
  run_ranks(3, GetParam(), [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() != 0) {
      comm.close();
      ++left;
      return;
    }
    EXPECT_TRUE(eventually([&] { return left == 2; }));
    int value = 0;
    const Outcome outcome =
        outcome_of([&] { comm.receive(&value, 1, DataType::kInt32, kAnyRank); });
    EXPECT_EQ(outcome.code, ErrorCode::kRankLeft) << outcome.message;
  });
}

// A member may be done with a new communicator before another one has it.
TEST_P(Leaving, ARankThatLeavesANewCommunicatorAtOnceIsNamed) {
  for (int round = 0; round < 10; ++round) {
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      Communicator part = comm.duplicate();
      if (comm.rank() == 0) {
        part.close();
        return comm.barrier();
      }
      const Outcome outcome = outcome_of([&] { part.barrier(); });
      EXPECT_EQ(outcome.code, ErrorCode::kRankLeft) << outcome.message;
      comm.barrier();
    });
  }
}

TEST_P(Leaving, ARankThatDidItsPartMayLeave) {
  for (const std::size_t count : {4ul, 5010ul, 400'000ul}) {
    std::atomic<int> done{0};
    run_ranks(4, GetParam(), [&](Communicator& comm) {
      std::vector<double> in(count, 1.0);
      std::vector<double> out(count);
      comm.barrier();
      // Nobody waits for the ranks above: with a small block the goodbyes of those below come
      // first. Threads read a larger one in place, and its owner waits for them.
      if (comm.rank() == 3 && count == 4) {
        EXPECT_TRUE(eventually([&] { return done >= 3; }));
      }
      comm.exscan(in.data(), out.data(), count, DataType::kFloat64, ops::sum);
      if (comm.rank() > 0) {
        EXPECT_EQ(out, std::vector<double>(count, comm.rank()));
      }
      comm.close();
      ++done;
    });
  }
}

// Also where it leaves a call of its own unfinished.
TEST_P(Leaving, WhatARankGaveBeforeItLeftCounts) {
  std::atomic<bool> left{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<int> data(4, 7 - comm.rank());
    comm.barrier();
    if (comm.rank() == 0) {
      int never = 0;
      Request receive = comm.receive_async(&never, 1, DataType::kInt32, 1);
      comm.broadcast(data, 0);
      comm.close();
      left = true;
      return;
    }
    EXPECT_TRUE(eventually([&] { return left.load(); }));
    comm.broadcast(data, 0);
    EXPECT_EQ(data, std::vector<int>(4, 7));
    EXPECT_EQ(outcome_of([&] { comm.barrier(); }).code, ErrorCode::kRankLeft);
  });
}

// Whose lengths are not agreed is a large call, whatever it moves.
TEST_P(Leaving, WhatARankGaveBeforeItLeftCountsInIrregularCalls) {
  std::atomic<bool> left{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    const std::vector<int> mine(4, 7 - comm.rank());
    const std::vector<std::size_t> counts(2, mine.size());
    comm.barrier();
    if (comm.rank() == 0) {
      int never = 0;
      Request receive = comm.receive_async(&never, 1, DataType::kInt32, 1);
      comm.gather_v(mine.data(), mine.size(), nullptr, {}, {}, DataType::kInt32, 1);
      comm.close();
      left = true;
      return;
    }
    EXPECT_TRUE(eventually([&] { return left.load(); }));
    std::vector<int> all(8);
    comm.gather_v(mine.data(), mine.size(), all.data(), counts, {}, DataType::kInt32, 1);
    EXPECT_EQ(all, (std::vector<int>{7, 7, 7, 7, 6, 6, 6, 6}));
  });
}

// Rank 0 leaves while it waits for a message; rank 1 gives its part of the gather much later.
void gather_from_one_that_left(const std::string& transport, std::size_t late_count) {
  std::atomic<bool> left{false}, root_gathers{false};
  run_ranks(3, transport, [&](Communicator& comm) {
    const std::vector<std::size_t> counts{4, late_count, 4};
    const std::vector<int> mine(counts[comm.rank()], 7 - comm.rank());
    comm.barrier();
    if (comm.rank() == 0) {
      int never = 0;
      Request receive = comm.receive_async(&never, 1, DataType::kInt32, 1);
      comm.gather_v(mine.data(), mine.size(), nullptr, {}, {}, DataType::kInt32, 2);
      comm.close();
      left = true;
      return;
    }
    EXPECT_TRUE(eventually([&] { return left.load(); }));
    std::vector<int> all(counts[0] + counts[1] + counts[2]);
    if (comm.rank() == 1) {
      EXPECT_TRUE(eventually([&] { return root_gathers.load(); }));
      std::this_thread::sleep_for(2 * grace::kCause);
      comm.gather_v(mine.data(), mine.size(), nullptr, {}, {}, DataType::kInt32, 2);
      return;
    }
    root_gathers = true;
    comm.gather_v(mine.data(), mine.size(), all.data(), counts, {}, DataType::kInt32, 2);
    EXPECT_EQ(all.front(), 7);
    EXPECT_EQ(all[counts[0]], 6);
    EXPECT_EQ(all.back(), 5);
  });
}

TEST_P(Leaving, WhatARankGaveBeforeItLeftCountsThoughAnotherIsLate) {
  gather_from_one_that_left(GetParam(), 4);
}

TEST_P(Leaving, WhatARankGaveBeforeItLeftCountsBesideMemoryThatIsReadInPlace) {
  gather_from_one_that_left(GetParam(), 1 << 18);
}

TEST_P(Leaving, MessagesSentBeforeLeavingArrive) {
  std::atomic<bool> left{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<int> data(1000, 7);
    // Afterwards they are connected: what is sent needs nobody's help to arrive.
    comm.barrier();
    if (comm.rank() == 0) {
      for (int i = 0; i < 5; ++i) comm.send(data, 1);
      comm.close();
      left = true;
      return;
    }
    EXPECT_TRUE(eventually([&] { return left.load(); }));
    for (int i = 0; i < 5; ++i) {
      data.assign(1000, 0);
      comm.receive(data, 0);
      EXPECT_EQ(data, std::vector<int>(1000, 7));
    }
    EXPECT_EQ(outcome_of([&] { comm.receive(data, 0); }).code, ErrorCode::kRankLeft);
  });
}

// Nothing has been said in the communicator before, so that nobody is told that it was closed.
TEST_P(Leaving, ARankThatLeftBeforeItSaidAnythingIsNamedToThoseThatReceive) {
  for (const Rank source : {1, kAnyRank}) {
    run_ranks(2, GetParam(), [&](Communicator& comm) {
      Communicator other = comm.duplicate();
      if (comm.rank() == 1) {
        other.close();
      } else {
        int data = 0;
        const Outcome outcome =
            outcome_of([&] { other.receive(&data, 1, DataType::kInt32, source); });
        EXPECT_EQ(outcome.code, ErrorCode::kRankLeft) << outcome.message;
        EXPECT_EQ(outcome.rank, 1) << outcome.message;
      }
      comm.barrier();
    });
  }
}

TEST_P(Leaving, ARankThatLeftIsNamedToARootThatKeepsBroadcasting) {
  for (const std::size_t count : {4ul, 200'000ul}) {
    std::atomic<bool> left{false};
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 1) {
        comm.close();
        left = true;
        return;
      }
      EXPECT_TRUE(eventually([&] { return left.load(); }));
      const Outcome outcome = give_until_it_fails(comm, count, {.timeout = kCallTimeout});
      ASSERT_TRUE(outcome.written);
      EXPECT_EQ(outcome.code, ErrorCode::kRankLeft) << outcome.message;
      EXPECT_EQ(outcome.rank, 1) << outcome.message;
    });
  }
}

// UNIX sockets are the code of TCP.
INSTANTIATE_TEST_SUITE_P(Transports, Leaving,
                         testing::ValuesIn(tested_transports_but({"shm", "unix"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
