// Asynchronous calls: finishing in any order, several communicators at once, what wait_for and
// test promise.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>

#include "tests/collective/rank_sums.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;

class Requests : public testing::TestWithParam<std::string> {};

TEST_P(Requests, MayBeWaitedForInDifferentOrdersOnDifferentRanks) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {4ul, 3000ul, 200'000ul}) {
      std::vector<std::int64_t> a = filled(comm.rank(), count);
      std::vector<std::int64_t> b = a;
      Request first = comm.all_reduce_async(a, ops::sum);
      Request second = comm.all_reduce_async(b, ops::sum);
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
        Request on_world = comm.all_reduce_async(a, ops::sum);
        Request on_other = other.all_reduce_async(b, ops::sum);
        on_world.wait();
        on_other.wait();
      } else {
        Request on_other = other.all_reduce_async(b, ops::sum);
        Request on_world = comm.all_reduce_async(a, ops::sum);
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
    Request request = comm.all_reduce_async(a, ops::sum);
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
    for (auto& each : data) requests.push_back(comm.all_reduce_async(each, ops::sum));
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
      comm.all_reduce(data, ops::sum);
    } else {
      Request request = comm.all_reduce_async(data, ops::sum);
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
    Request request = comm.all_reduce_async(data, ops::sum);
    while (!request.test()) std::this_thread::yield();
    request.wait();
    EXPECT_EQ(data, total(3, 70'000));
  });
}

TEST_P(Requests, TheDestructorWaits) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int64_t> data = filled(comm.rank(), 100'000);
    { const Request dropped = comm.all_reduce_async(data, ops::sum); }
    EXPECT_EQ(data, total(2, 100'000));
    data = filled(comm.rank(), 10);
    Request request = comm.all_reduce_async(data, ops::sum);
    request = Request();
    EXPECT_EQ(data, total(2, 10));
    EXPECT_TRUE(request.test());
  });
}

TEST_P(Requests, MakeProgressWhileNobodyWaits) {
  std::atomic<bool> other_done{false};
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<std::int64_t> data = filled(comm.rank(), 300'000);
    Request request = comm.all_reduce_async(data, ops::sum);
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
    if (comm.rank() == 0) request = other.all_reduce_async(data, ops::sum);
    if (comm.rank() == 1) comm.barrier();  // who closes first is the one that has left
    other.close();
    if (comm.rank() == 1) return;
    EXPECT_TRUE(request.test());
    EXPECT_EQ(request.status().code(), ErrorCode::kClosed) << request.status().message();
    comm.barrier();
  });
}

TEST_P(Requests, MayBeWaitedForByOtherThreads) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::int64_t> data = filled(comm.rank(), 100'000);
      Request request = comm.all_reduce_async(data, ops::sum);
      std::thread waiting([&] {
        request.wait();
        EXPECT_EQ(data, total(2, 100'000));
      });
      while (!request.test()) std::this_thread::yield();
      EXPECT_TRUE(request.status().ok());
      waiting.join();
    }
  });
}

TEST_P(Requests, KeepTheBuffersOfADetachedCallUntilItIsOver) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    constexpr Tag kTag = 3;
    if (comm.rank() == 0) {
      auto buffer = std::make_shared<std::vector<std::int64_t>>(filled(4, 300'000));
      const std::weak_ptr<void> alive = buffer;
      Request request = comm.send_async(buffer->data(), buffer->size(), DataType::kInt64, 1, kTag);
      request.detach(std::move(buffer));
      EXPECT_TRUE(request.test()) << "an empty one";
      comm.send(std::vector<int>{1}, 1, kTag + 1);
      while (!alive.expired()) std::this_thread::yield();
    } else {
      std::vector<int> begins(1);
      comm.receive(begins, 0, kTag + 1);
      std::vector<std::int64_t> got(300'000);
      comm.receive(got, 0, kTag);
      EXPECT_EQ(got, filled(4, 300'000));
    }
    comm.barrier();
  });
}

TEST_P(Requests, ReleaseADetachedBufferWhenTheCommunicatorIsClosed) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::weak_ptr<void> alive;
    if (comm.rank() == 0) {
      auto buffer = std::make_shared<std::vector<std::int64_t>>(10);
      alive = buffer;
      other.all_reduce_async(*buffer, ops::sum).detach(std::move(buffer));
      EXPECT_FALSE(alive.expired());
    }
    other.close();
    EXPECT_TRUE(alive.expired());
    comm.barrier();
  });
}

TEST_P(Requests, MayBeTheirOwnersWhenTheyAreDetached) {
  struct Work {
    std::vector<std::int64_t> data = filled(1, 1000);
    Request request;
  };
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (const bool is_over : {true, false}) {
      auto work = std::make_shared<Work>();
      const std::weak_ptr<void> alive = work;
      Request& request = work->request;
      request = comm.all_reduce_async(work->data, ops::sum);
      if (is_over) request.wait();
      request.detach(std::move(work));
      comm.barrier();
      while (!alive.expired()) std::this_thread::yield();
    }
  });
}

TEST_P(Requests, AreWaitedForAllTogether) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<std::int64_t> a = filled(comm.rank(), 20'000), b = a;
    std::vector<Request> requests;
    requests.emplace_back();
    requests.push_back(comm.all_reduce_async(a, ops::sum));
    requests.push_back(other.all_reduce_async(b, ops::sum));
    wait_all(requests);
    EXPECT_EQ(a, total(3, 20'000));
    EXPECT_EQ(b, total(3, 20'000));
    wait_all(std::span<Request>());
  });
}

// The first in the order of the span, which is the second to fail. What ends well comes last.
TEST_P(Requests, ThrowTheFirstFailureOnceAllHaveEnded) {
  enum : Tag { kFirst = 1, kGood, kEarly };
  std::atomic<Tag> failed = 0;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.send(std::vector<int>{1, 2}, 0, kEarly);
      while (failed != kEarly) std::this_thread::yield();
      comm.send(std::vector<int>{1, 2}, 0, kFirst);
      while (failed != kFirst) std::this_thread::yield();
      comm.send(std::vector<int>{7, 8}, 0, kGood);
      return;
    }
    std::vector<int> room(2), good(2);
    std::vector<Request> requests;
    requests.push_back(comm.receive_async(room.data(), 1, DataType::kInt32, 1, kFirst));
    requests.push_back(comm.receive_async(good.data(), 2, DataType::kInt32, 1, kGood));
    requests.push_back(comm.receive_async(room.data() + 1, 1, DataType::kInt32, 1, kEarly));
    while (!requests[2].test()) std::this_thread::yield();
    std::jthread looking([&] {
      while (requests[0].status().ok()) std::this_thread::yield();
      failed = kFirst;
    });
    failed = kEarly;
    try {
      wait_all(requests);
      ADD_FAILURE() << "two elements do not fit one";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("with tag 1 "), std::string::npos) << error.what();
    }
    EXPECT_EQ(good, (std::vector<int>{7, 8}));
  });
}

TEST_P(Requests, OfSeveralOneIsFoundOver) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<int> never(1), soon(1);
    if (comm.rank() == 0) {
      std::vector<Request> requests;
      requests.push_back(comm.receive_async(never.data(), 1, DataType::kInt32, 1, 1));
      requests.push_back(comm.receive_async(soon.data(), 1, DataType::kInt32, 1, 2));
      EXPECT_EQ(wait_any(requests), 1u);
      EXPECT_EQ(soon[0], 5);
      comm.send(std::vector<int>{0}, 1);
      requests[0].wait();
      EXPECT_EQ(wait_any(requests), 0u) << "both are over";
      requests[0] = Request();
      EXPECT_EQ(wait_any(requests), 1u);
      requests[1] = Request();
      EXPECT_THROW(wait_any(requests), Error) << "there is none left";
    } else {
      comm.send(std::vector<int>{5}, 0, 2);
      std::vector<int> go(1);
      comm.receive(go, 0);
      comm.send(std::vector<int>{6}, 0, 1);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Requests, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
