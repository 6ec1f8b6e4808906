// Ranks that do not come, ranks that abort: what the others are told.
#include <gmock/gmock.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/grace_periods.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"
#include "tests/support/try_limits.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class Deadline : public testing::TestWithParam<std::string> {};

constexpr CallOptions kSoon{.timeout = milliseconds(600)};
const std::vector<milliseconds> kLimits{milliseconds(600), milliseconds(1500), milliseconds(3000),
                                        milliseconds(6000)};

// Those who come do so at the same time: who is late would be named as well.
void meet(std::atomic<int>& here, int count) {
  ++here;
  if (!eventually([&] { return here >= count; })) throw std::runtime_error("not all came");
}

// The late one too, which has heard of it, though all data of a small call are there for it.
void expect_the_late_rank_named(const std::string& transport, std::size_t count,
                                milliseconds limit) {
  std::atomic<int> here{0}, ended{0};
  run_ranks(4, transport, [&](Communicator& comm) {
    std::vector<float> data(count, 1.0f);
    if (comm.rank() == 2) {
      EXPECT_TRUE(eventually([&] { return ended == 3 && !comm.status().ok(); }));
    } else {
      meet(here, 3);
    }
    const Outcome outcome =
        outcome_of([&] { comm.all_reduce(data, ops::sum, {.timeout = limit}); });
    ++ended;
    ASSERT_TRUE(outcome.written);
    EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
    EXPECT_EQ(outcome.rank, 2) << outcome.message;
    EXPECT_THAT(std::string(outcome.message), HasSubstr("rank 2"));
    EXPECT_THAT(std::string(outcome.message), HasSubstr("arrived"));
    const Outcome later = outcome_of([&] { comm.barrier(); });
    EXPECT_EQ(later.code, ErrorCode::kTimeout);
  });
}

TEST_P(Deadline, NamesTheRankThatHadNotArrived) {
  for (const std::size_t count : {4ul, 200'000ul}) {
    try_limits(kLimits,
               [&](milliseconds limit) { expect_the_late_rank_named(GetParam(), count, limit); });
  }
}

// Before anybody has reported for whom it waits: in a ring each waits for its neighbour.
TEST_P(Deadline, ThatIsShortNamesTheRankThatHadNotArrived) {
  const std::vector<milliseconds> before_reports(5, milliseconds(450));
  for (const std::size_t count : {4ul, 200'000ul}) {
    try_limits(before_reports, [&](milliseconds limit) {
      std::atomic<int> here{0}, ended{0};
      run_ranks(4, GetParam(), [&](Communicator& comm) {
        std::vector<float> data(count, 1.0f);
        comm.all_reduce(data, ops::sum);  // links stand
        if (comm.rank() == 2) {
          EXPECT_TRUE(eventually([&] { return ended == 3; }));
          return;
        }
        meet(here, 3);
        const CallOptions at_once{.timeout = limit, .algorithm = "ring"};
        const Outcome outcome = outcome_of([&] { comm.all_reduce(data, ops::sum, at_once); });
        ++ended;
        ASSERT_TRUE(outcome.written);
        EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
        EXPECT_EQ(outcome.rank, 2) << outcome.message;
      });
    });
  }
}

// As ranks of a tensor-parallel group that hold up a data-parallel one.
TEST_P(Deadline, NamesTheRankThatHoldsUpAnotherInAnotherCommunicator) {
  try_limits(kLimits, [&](milliseconds limit) {
    std::atomic<int> here{0}, ended{0};
    run_ranks(4, GetParam(), [&](Communicator& comm) {
      Communicator pair = comm.split(comm.rank() / 2);
      if (comm.rank() == 3) {
        EXPECT_TRUE(eventually([&] { return ended == 2; }));
      } else {
        meet(here, 3);
      }
      if (comm.rank() >= 2) return pair.barrier({.timeout = 3 * kCallTimeout});
      const Outcome outcome = outcome_of([&] { comm.barrier({.timeout = limit}); });
      ++ended;
      EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
      EXPECT_EQ(outcome.rank, 3) << outcome.message;
      EXPECT_THAT(std::string(outcome.message), HasSubstr(" for rank 3; rank 3 "));
    });
  });
}

// As fast as the one before, and by its own time where it is not.
TEST_P(Deadline, OfARepeatedCallIsItsOwn) {
  std::atomic<bool> ended{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<float> data(4, 1.0f);
    for (int i = 0; i < 3; ++i) comm.all_reduce(data, ops::max);
    if (comm.rank() == 1) {
      EXPECT_TRUE(eventually([&] { return ended.load(); }));
      return;
    }
    const Outcome outcome = outcome_of([&] { comm.all_reduce(data, ops::max, kSoon); });
    ended = true;
    EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
    EXPECT_THAT(std::string(outcome.message), HasSubstr("limit 600 ms by the call's own timeout"));
  });
}

TEST_P(Deadline, InACommunicatorOfAnotherOrderSaysWhoseRanksItNames) {
  try_limits(kLimits, [&](milliseconds limit) {
    std::atomic<int> here{0}, ended{0};
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      Communicator reversed = comm.split(0, -comm.rank());
      if (comm.rank() == 2) {
        EXPECT_TRUE(eventually([&] { return ended == 2; }));
        return;
      }
      meet(here, 2);
      const Outcome outcome = outcome_of([&] { reversed.barrier({.timeout = limit}); });
      ++ended;
      EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
      EXPECT_EQ(outcome.rank, 0) << outcome.message;
      EXPECT_THAT(std::string(outcome.message),
                  AllOf(HasSubstr("rank 2 had not arrived, ranks 0 and 1 had"),
                        EndsWith("(ranks as the job numbers them)")));
    });
  });
}

TEST_P(Deadline, NamesAllRanksThatHadNotArrived) {
  try_limits(kLimits, [&](milliseconds limit) {
    std::atomic<int> here{0}, ended{0};
    run_ranks(5, GetParam(), [&](Communicator& comm) {
      if (comm.rank() == 1 || comm.rank() == 3) {
        EXPECT_TRUE(eventually([&] { return ended == 3; }));
        return;
      }
      meet(here, 3);
      const Outcome outcome = outcome_of([&] { comm.barrier({.timeout = limit}); });
      ++ended;
      ASSERT_TRUE(outcome.written);
      EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
      EXPECT_THAT(std::string(outcome.message), HasSubstr("1 and 3"));
    });
  });
}

// The other communicator waits longer, so that its reports are the latest.
void expect_the_first_of_several_to_name(const std::string& transport, std::size_t count,
                                         milliseconds limit) {
  std::atomic<int> here{0}, ended{0};
  run_ranks(3, transport, [&](Communicator& comm) {
    Communicator other = comm.duplicate();
    if (comm.rank() == 2) {
      EXPECT_TRUE(eventually([&] { return ended == 2; }));
      return;
    }
    std::vector<std::vector<float>> data(4, std::vector<float>(count, 1.0f));
    std::vector<Request> requests;
    const CallOptions soon{.timeout = limit}, later{.timeout = limit + milliseconds(600)};
    meet(here, 2);
    for (std::size_t i = 0; i < 3; ++i) {
      requests.push_back(comm.all_reduce_async(data[i], ops::sum, i == 0 ? soon : later));
    }
    requests.push_back(other.all_reduce_async(data[3], ops::sum, later));
    for (Request& request : requests) {
      const Outcome outcome = outcome_of([&] { request.wait(); });
      EXPECT_TRUE(outcome.written);
      EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
      EXPECT_EQ(outcome.rank, 2) << outcome.message;
      EXPECT_THAT(std::string(outcome.message), HasSubstr("rank 2 had not arrived"));
    }
    ++ended;
  });
}

TEST_P(Deadline, OfTheFirstOfSeveralOutstandingCallsNamesTheRank) {
  for (const std::size_t count : {4ul, 100'000ul}) {
    try_limits(
        {milliseconds(900), milliseconds(3000), milliseconds(6000)},
        [&](milliseconds limit) { expect_the_first_of_several_to_name(GetParam(), count, limit); });
  }
}

TEST_P(Deadline, EndsAReceiveThatNobodySendsTo) {
  std::atomic<bool> ended{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    if (comm.rank() == 1) {
      EXPECT_TRUE(eventually([&] { return ended.load(); }));
      return;
    }
    int value = 0;
    const Outcome outcome =
        outcome_of([&] { comm.receive(&value, 1, DataType::kInt32, 1, 5, kSoon); });
    ended = true;
    EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
    EXPECT_EQ(outcome.rank, 1) << outcome.message;
    EXPECT_THAT(std::string(outcome.message), HasSubstr("receive"));
  });
}

TEST_P(Deadline, OfAnAsynchronousCallHoldsWithoutAWaiter) {
  std::atomic<bool> ended{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    if (comm.rank() == 1) {
      EXPECT_TRUE(eventually([&] { return ended.load(); }));
      return;
    }
    std::vector<float> data(10);
    Request request = comm.all_reduce_async(data, ops::sum, kSoon);
    EXPECT_TRUE(eventually([&] { return !request.status().ok(); }));
    EXPECT_EQ(request.status().code(), ErrorCode::kTimeout) << request.status().message();
    EXPECT_TRUE(request.test());
    ended = true;
  });
}

TEST_P(Deadline, OfOneCommunicatorLeavesOthersAlone) {
  std::atomic<bool> ended{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    Communicator other = comm.duplicate();
    if (comm.rank() == 0) {
      EXPECT_EQ(outcome_of([&] { other.barrier(kSoon); }).code, ErrorCode::kTimeout);
      ended = true;
    } else {
      EXPECT_TRUE(eventually([&] { return ended.load(); }));
    }
    std::vector<int> data(50'000, 1);
    comm.all_reduce(data, ops::sum);
    EXPECT_EQ(data, std::vector<int>(50'000, 2));
  });
}

TEST_P(Deadline, AbortFromAnotherThreadEndsAllRanks) {
  for (const std::size_t count : {4ul, 200'000ul}) {
    std::atomic<int> entered{0};
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      Communicator other = comm.duplicate();
      std::thread aborter;
      if (comm.rank() == 1) {
        aborter = std::thread([&] {
          EXPECT_TRUE(eventually([&] { return entered == 2; }));
          comm.abort("somebody changed their mind");
        });
      }
      std::vector<float> data(count, 1.0f);
      Outcome outcome;
      if (comm.rank() == 2) {
        // Makes no call until it is over; hears of it in its next one.
        EXPECT_TRUE(eventually([&] { return entered == 4; }));
        outcome = outcome_of([&] {
          for (;;) comm.barrier();
        });
      } else {
        ++entered;
        outcome = outcome_of([&] { comm.all_reduce(data, ops::sum); });
        ++entered;
      }
      if (aborter.joinable()) aborter.join();
      ASSERT_TRUE(outcome.written);
      EXPECT_EQ(outcome.code, ErrorCode::kAborted) << outcome.message;
      EXPECT_EQ(outcome.rank, 1) << outcome.message;
      EXPECT_THAT(std::string(outcome.message), HasSubstr("changed their mind"));
      EXPECT_EQ(outcome_of([&] { comm.barrier(); }).code, ErrorCode::kAborted);
      EXPECT_EQ(comm.status().code(), ErrorCode::kAborted);
      std::vector<int> healthy{1};
      other.all_reduce(healthy, ops::sum);
      EXPECT_EQ(healthy[0], 3);
    });
  }
}

TEST_P(Deadline, AFailureOfANewCommunicatorReachesMembersThatWereStillMakingIt) {
  for (int round = 0; round < 10; ++round) {
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      Communicator part = comm.duplicate();
      if (comm.rank() == 0) part.abort("changed my mind");
      const Outcome outcome = outcome_of([&] {
        for (;;) part.barrier();
      });
      EXPECT_EQ(outcome.code, ErrorCode::kAborted) << outcome.message;
      comm.barrier();
    });
  }
}

TEST_P(Deadline, AnAbortNamesWhomItsRankSays) {
  run_ranks(3, GetParam(), [&](Communicator& comm) {
    Communicator part = comm.duplicate();
    if (comm.rank() == 0) {
      for (const Rank nobody : {-2, 3}) {
        const Outcome refused = outcome_of([&] { part.abort("never heard", nobody); });
        EXPECT_EQ(refused.code, ErrorCode::kInvalidArgument) << refused.message;
      }
      part.abort("rank 2 has gone astray", 2);
    }
    const Outcome outcome = outcome_of([&] {
      for (;;) part.barrier();
    });
    EXPECT_EQ(outcome.code, ErrorCode::kAborted) << outcome.message;
    EXPECT_EQ(outcome.rank, 2) << outcome.message;
    EXPECT_THAT(std::string(outcome.message), HasSubstr("gone astray"));
    comm.barrier();  // which has not
  });
}

TEST_P(Deadline, FarTimeoutsAreNoPastOnes) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    constexpr auto kFar = std::chrono::milliseconds::max();
    int value = comm.rank();
    comm.all_reduce(&value, &value, 1, DataType::kInt32, ops::sum, {.timeout = kFar});
    EXPECT_EQ(value, 1);
    Request request = comm.all_reduce_async(&value, &value, 1, DataType::kInt32, ops::sum);
    EXPECT_TRUE(request.wait_for(kFar));
    EXPECT_EQ(value, 2);
  });
}

// A live one is asked and goes on, whatever it is in.
TEST_P(Deadline, AMessageThatComesLateIsNoFailure) {
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    Communicator other = comm.duplicate();
    int data = 0;
    if (comm.rank() == 1) {
      // Until the other rank has waited for as long as makes it ask.
      comm.receive(&data, 1, DataType::kInt32, 0);
      other.send(&data, 1, DataType::kInt32, 0);
    } else {
      Request late = other.receive_async(&data, 1, DataType::kInt32, 1);
      EXPECT_FALSE(late.wait_for(10 * grace::kProbeAfter));
      const int value = 42;
      comm.send(&value, 1, DataType::kInt32, 1);
      late.wait();
      EXPECT_EQ(data, 42);
    }
    other.barrier();
  });
}

// What only gives needs nobody's data, and yet room for its own: the others must have taken theirs.
// Rings hold some thousand small messages before that.
Outcome give_until_it_fails(Communicator& comm, std::size_t count, const CallOptions& options) {
  std::vector<float> data(count, 1.0f);
  return outcome_of([&] {
    for (int i = 0; i < 20'000; ++i) comm.broadcast(data, 0, options);
  });
}

TEST_P(Deadline, OfARootThatKeepsBroadcastingNamesWhoDoesNotTake) {
  for (const std::size_t count : {4ul, 200'000ul}) {
    try_limits(kLimits, [&](milliseconds limit) {
      std::atomic<int> here{0}, ended{0};
      run_ranks(3, GetParam(), [&](Communicator& comm) {
        comm.barrier();
        if (comm.rank() == 1) {
          EXPECT_TRUE(eventually([&] { return ended == 2; }));
          return;
        }
        meet(here, 2);
        // The root's deadline is the first to pass: rank 2 only knows that the root is late.
        const CallOptions options{.timeout = comm.rank() == 0 ? limit : 2 * kCallTimeout};
        const Outcome outcome = give_until_it_fails(comm, count, options);
        ++ended;
        ASSERT_TRUE(outcome.written);
        EXPECT_EQ(outcome.code, ErrorCode::kTimeout) << outcome.message;
        EXPECT_EQ(outcome.rank, 1) << outcome.message;
        EXPECT_THAT(std::string(outcome.message), HasSubstr("rank 1"));
      });
    });
  }
}

// UNIX sockets are the code of TCP.
INSTANTIATE_TEST_SUITE_P(Transports, Deadline,
                         testing::ValuesIn(tested_transports_but({"shm", "unix"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
