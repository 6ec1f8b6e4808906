// Asynchronous calls: finishing in any order, several communicators at once, what wait_for and
// test promise.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;

class Requests : public testing::TestWithParam<std::string> {};

std::vector<std::int64_t> filled(Rank rank, std::size_t count) {
  return std::vector<std::int64_t>(count, rank + 1);
}
std::vector<std::int64_t> total(int ranks, std::size_t count) {
  return std::vector<std::int64_t>(count, ranks * (ranks + 1) / 2);
}

TEST_P(Requests, MayBeWaitedForInDifferentOrdersOnDifferentRanks) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {4ul, 3000ul, 200'000ul}) {
      std::vector<std::int64_t> a = filled(comm.rank(), count);
      std::vector<std::int64_t> b = a;
      Request first = comm.all_reduce_async(a, sum);
      Request second = comm.all_reduce_async(b, sum);
      if (comm.rank() == 0) {
        first.wait();
        second.wait();
      } else {
        second.wait();
        first.wait();
      }
      EXPECT_EQ(a, total(3, count));
      EXPECT_EQ(b, total(3, count));
    }
  });
}

TEST_P(Requests, OfTwoCommunicatorsMayBeWaitedForInCrossingOrders) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    for (const std::size_t count : {4ul, 200'000ul}) {
      std::vector<std::int64_t> a = filled(comm.rank(), count);
      std::vector<std::int64_t> b = a;
      // Started in different orders too: communicators are independent.
      if (comm.rank() == 0) {
        Request on_world = comm.all_reduce_async(a, sum);
        Request on_other = other.all_reduce_async(b, sum);
        on_world.wait();
        on_other.wait();
      } else {
        Request on_other = other.all_reduce_async(b, sum);
        Request on_world = comm.all_reduce_async(a, sum);
        on_other.wait();
        on_world.wait();
      }
      EXPECT_EQ(a, total(2, count));
      EXPECT_EQ(b, total(2, count));
    }
  });
}

TEST_P(Requests, ABlockingCallMovesOthersAlong) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<std::int64_t> a = filled(comm.rank(), 100'000);
    Request request = comm.all_reduce_async(a, sum);
    if (comm.rank() == 1) request.wait();
    other.barrier();
    request.wait();
    EXPECT_EQ(a, total(2, 100'000));
  });
}

TEST_P(Requests, ManyInFlightFinishInReverseOrder) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kCalls = 60;
    std::vector<std::vector<std::int64_t>> data;
    for (std::size_t i = 0; i < kCalls; ++i) data.push_back(filled(comm.rank(), i * 97 % 4000));
    std::vector<Request> requests;
    for (auto& each : data) requests.push_back(comm.all_reduce_async(each, sum));
    while (!requests.empty()) {
      requests.back().wait();
      requests.pop_back();
    }
    for (const auto& each : data) EXPECT_EQ(each, total(4, each.size()));
  });
}

TEST_P(Requests, WaitForEndsAtItsLimitAndTheCallGoesOn) {
  std::atomic<bool> released{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<std::int64_t> data = filled(comm.rank(), 50);
    if (comm.rank() == 1) {
      while (!released) std::this_thread::yield();
      comm.all_reduce(data, sum);
    } else {
      Request request = comm.all_reduce_async(data, sum);
      EXPECT_FALSE(request.wait_for(milliseconds(5)));
      EXPECT_FALSE(request.test());
      EXPECT_TRUE(request.status().ok());
      released = true;
      EXPECT_TRUE(request.wait_for(kCallTimeout));
      EXPECT_TRUE(request.test());
    }
    EXPECT_EQ(data, total(2, 50));
  });
}

TEST_P(Requests, TestAloneFinishesThem) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<std::int64_t> data = filled(comm.rank(), 70'000);
    Request request = comm.all_reduce_async(data, sum);
    while (!request.test()) std::this_thread::yield();
    request.wait();
    EXPECT_EQ(data, total(3, 70'000));
  });
}

TEST_P(Requests, TheDestructorWaits) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int64_t> data = filled(comm.rank(), 100'000);
    { const Request dropped = comm.all_reduce_async(data, sum); }
    EXPECT_EQ(data, total(2, 100'000));
    data = filled(comm.rank(), 10);
    Request request = comm.all_reduce_async(data, sum);
    request = Request();
    EXPECT_EQ(data, total(2, 10));
    EXPECT_TRUE(request.test());
  });
}

TEST_P(Requests, MakeProgressWhileNobodyWaits) {
  std::atomic<bool> other_done{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<std::int64_t> data = filled(comm.rank(), 300'000);
    Request request = comm.all_reduce_async(data, sum);
    if (comm.rank() == 0) {
      // Not a call into the library until the other one is done.
      while (!other_done) std::this_thread::yield();
    } else {
      request.wait();
      other_done = true;
    }
    request.wait();
    EXPECT_EQ(data, total(2, 300'000));
  });
}

TEST_P(Requests, CountArraysMayEndBeforeTheCall) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<int> in(5, comm.rank());
    std::vector<int> out(10, -1);
    Request request;
    {
      std::vector<std::size_t> counts{5, 5};
      request = comm.start({.collective = Collective::kAllGatherV,
                            .in = in.data(),
                            .out = out.data(),
                            .type = DataType::kInt32,
                            .out_counts = counts});
      counts.assign(2, 1'000'000);
    }
    request.wait();
    EXPECT_EQ(out, (std::vector<int>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  });
}

TEST_P(Requests, FinishWithTheCommunicatorWhenItIsClosed) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<std::int64_t> data(10);
    Request request;
    if (comm.rank() == 0) request = other.all_reduce_async(data, sum);
    other.close();
    if (comm.rank() == 0) {
      EXPECT_TRUE(request.test());
      EXPECT_EQ(request.status().code(), ErrorCode::kClosed) << request.status().message();
    }
    comm.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Requests,
                         testing::ValuesIn(tested_transports({"auto", "loopback", "unix", "tcp"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
