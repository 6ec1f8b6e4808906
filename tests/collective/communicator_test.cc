// Communicators: split, duplicate, many of them, threads, closing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

class Communicators : public testing::TestWithParam<std::string> {};

template <typename Function>
Error error_of(Function&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Status());
}

template <typename Function>
ErrorCode code_of(Function&& call) {
  return error_of(call).code();
}

std::vector<int> ranks_of(Communicator& part, int mine) {
  std::vector<int> all(static_cast<std::size_t>(part.size()));
  part.all_gather(std::vector<int>{mine}, all);
  return all;
}

TEST_P(Communicators, SplitOrdersByKeyThenRank) {
  run_ranks(6, GetParam(), [](Communicator& comm) {
    const int key = comm.rank() < 2 ? 5 : -comm.rank() / 2;
    Communicator part = comm.split(comm.rank() % 2, key);
    ASSERT_EQ(part.size(), 3);
    const std::vector<int> expected =
        comm.rank() % 2 == 0 ? std::vector<int>{4, 2, 0} : std::vector<int>{5, 3, 1};
    EXPECT_EQ(ranks_of(part, comm.rank()), expected);
    EXPECT_EQ(expected[static_cast<std::size_t>(part.rank())], comm.rank());
    // Rooted calls use the part's numbers.
    int value = comm.rank();
    part.broadcast(&value, 1, DataType::kInt32, 0);
    EXPECT_EQ(value, expected[0]);
  });
}

TEST_P(Communicators, ANegativeColorGivesAnEmptyOneThatRefusesCalls) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    Communicator part = comm.split(comm.rank() == 1 ? -1 : 4);
    std::vector<int> data{1};
    if (comm.rank() == 1) {
      EXPECT_TRUE(part.empty());
      EXPECT_EQ(part.rank(), -1);
      EXPECT_EQ(part.size(), 0);
      EXPECT_EQ(code_of([&] { part.all_reduce(data, ops::sum); }), ErrorCode::kNotMember);
      EXPECT_EQ(code_of([&] { part.all_reduce_async(data, ops::sum); }), ErrorCode::kNotMember);
      EXPECT_EQ(code_of([&] { part.split(0); }), ErrorCode::kNotMember);
      EXPECT_EQ(part.status().code(), ErrorCode::kNotMember);
      EXPECT_EQ(code_of([&] { allocate(part, 64); }), ErrorCode::kNotMember);
      void* const memory = allocate(comm, 64);
      EXPECT_EQ(code_of([&] { release(part, memory); }), ErrorCode::kNotMember);
      EXPECT_EQ(code_of([&] { release(part, nullptr); }), ErrorCode::kOk);
      release(comm, memory);
      EXPECT_EQ(code_of([&] { register_memory(part, data.data(), 4); }), ErrorCode::kNotMember);
      const MemberCall call{&part, {.collective = Collective::kBarrier}};
      EXPECT_EQ(code_of([&] { group({&call, 1}); }), ErrorCode::kNotMember);
      part.close();
    } else {
      EXPECT_EQ(part.size(), 2);
      part.all_reduce(data, ops::sum);
      EXPECT_EQ(data[0], 2);
    }
    comm.barrier();
  });
}

TEST_P(Communicators, PartsOfPartsWork) {
  run_ranks(8, GetParam(), [](Communicator& comm) {
    Communicator half = comm.split(comm.rank() / 4);
    Communicator pair = half.split(half.rank() % 2);
    std::vector<int> data(5000, comm.rank());
    pair.all_reduce(data, ops::sum);
    const int low = comm.rank() / 4 * 4 + comm.rank() % 2;
    EXPECT_EQ(data, std::vector<int>(5000, 2 * low + 2));
    half.all_reduce(data, ops::max);
    comm.all_reduce(data, ops::max);
    EXPECT_EQ(data, std::vector<int>(5000, 12));
  });
}

TEST_P(Communicators, APartOfOneRankMakesCallsThatHaveARoot) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator own = comm.split(comm.rank());
    ASSERT_EQ(own.size(), 1);
    const std::vector<int> in(16'384, comm.rank());
    for (int call = 0; call < 5; ++call) {
      std::vector<int> scattered(in.size(), -1), gathered(in.size(), -1);
      own.scatter(in.data(), scattered.data(), in.size(), DataType::kInt32, 0);
      EXPECT_EQ(scattered, in);
      own.gather(in.data(), gathered.data(), in.size(), DataType::kInt32, 0);
      EXPECT_EQ(gathered, in);
    }
  });
}

TEST_P(Communicators, PartsMaySplitAtDifferentTimes) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    Communicator half = comm.split(comm.rank() / 2);
    // One half makes more communicators than the other; then everybody does.
    std::vector<Communicator> more;
    if (comm.rank() < 2) {
      for (int i = 0; i < 3; ++i) more.push_back(half.duplicate());
    }
    Communicator all = comm.duplicate();
    std::vector<int> data{1};
    all.all_reduce(data, ops::sum);
    EXPECT_EQ(data[0], 4);
    for (Communicator& each : more) {
      data = {1};
      each.all_reduce(data, ops::sum);
      EXPECT_EQ(data[0], 2);
    }
  });
}

TEST_P(Communicators, AHundredWorkSideBySide) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<Communicator> many;
    for (int i = 0; i < 100; ++i) many.push_back(comm.duplicate());
    std::vector<std::vector<int>> data;
    for (int i = 0; i < 100; ++i) data.emplace_back(i % 3 == 0 ? 20'000 : 7, i);
    std::vector<Request> requests;
    for (int i = 0; i < 100; ++i) {
      const auto at = static_cast<std::size_t>(comm.rank() == 0 ? i : 99 - i);
      requests.push_back(many[at].all_reduce_async(data[at], ops::sum));
    }
    for (Request& request : requests) request.wait();
    for (int i = 0; i < 100; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(data[at], std::vector<int>(data[at].size(), 2 * i));
    }
  });
}

TEST_P(Communicators, MayBeMadeAndClosedAgainAndAgain) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (int i = 0; i < 300; ++i) {
      Communicator part = comm.duplicate();
      std::vector<int> data{i};
      part.all_reduce(data, ops::sum);
      ASSERT_EQ(data[0], 2 * i);
    }
  });
}

TEST_P(Communicators, ClosedOnesRefuseCallsAndLeaveOthersAlone) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator part = comm.duplicate();
    part.barrier();
    part.close();
    part.close();
    std::vector<int> data{1};
    EXPECT_EQ(code_of([&] { part.all_reduce(data, ops::sum); }), ErrorCode::kClosed);
    EXPECT_EQ(part.status().code(), ErrorCode::kClosed);
    EXPECT_EQ(code_of([&] { allocate(part, 64); }), ErrorCode::kClosed);
    EXPECT_EQ(code_of([&] { register_memory(part, data.data(), 4); }), ErrorCode::kClosed);
    comm.all_reduce(data, ops::sum);
    EXPECT_EQ(data[0], 2);
  });
}

TEST_P(Communicators, ClosedOnesTellTheFailureBeforeThat) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator part = comm.duplicate();
    if (comm.rank() == 0) {
      part.abort("of the test");
      part.close();
      EXPECT_EQ(code_of([&] { part.barrier(); }), ErrorCode::kAborted);
      part.abort("of nothing");
      EXPECT_EQ(part.status().message(), "of the test");
    }
    comm.barrier();
  });
}

// Which link leads to the rank at fault, and where that runs.
TEST_P(Communicators, ErrorsTellTheLinkAndTheHostOfTheRank) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator part = comm.duplicate();
    if (comm.rank() == 1) part.abort("of the test");
    try {
      for (;;) part.barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_EQ(error.host(), comm.host_of(1));
      const bool shares = comm.describe().find("shared memory") != std::string::npos;
      const std::string link = shares ? "shm" : GetParam();
      EXPECT_EQ(error.link(), comm.rank() == 1 ? "" : link);
    }
    comm.barrier();
  });
}

// Nothing more of the communicator begins, what has begun ends, and the other one has all its
// calls.
TEST_P(Communicators, CallsOfAGroupEndWhereTheirCommunicatorRefusesOne) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    const int one = 1;
    int first = 0, second = 0, behind = 0, elsewhere = 0;
    const auto sum_into = [&](int* out) {
      return Call{.collective = Collective::kAllReduce,
                  .in = &one,
                  .out = out,
                  .count = 1,
                  .type = DataType::kInt32};
    };
    const Call of_no_root{.collective = Collective::kBroadcast,
                          .in = &second,
                          .out = &second,
                          .count = 1,
                          .type = DataType::kInt32,
                          .root = 2};
    const std::vector<MemberCall> calls{{&comm, sum_into(&first)},
                                        {&comm, of_no_root},
                                        {&comm, sum_into(&behind)},
                                        {&other, sum_into(&elsewhere)}};
    EXPECT_EQ(code_of([&] { group(calls); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(first, 2);
    EXPECT_EQ(behind, 0);
    EXPECT_EQ(elsewhere, 2);
    comm.barrier();
  });
}

TEST_P(Communicators, DifferentOnesMayBeUsedFromDifferentThreads) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    constexpr int kThreads = 3;
    std::vector<Communicator> own;
    for (int i = 0; i < kThreads; ++i) own.push_back(comm.duplicate());
    std::vector<std::thread> threads;
    for (Communicator& mine : own) {
      threads.emplace_back([&mine] {
        for (int i = 0; i < 60; ++i) {
          std::vector<int> data(i % 5 == 0 ? 30'000 : 20, i);
          try {
            mine.all_reduce(data, ops::sum, {.timeout = kCallTimeout});
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
            return;
          }
          ASSERT_EQ(data.back(), 2 * i);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Communicators, AsynchronousCallsMayStartOnSeveralThreadsAtOnce) {
  for (int round = 0; round < 20; ++round) {
    run_ranks(2, GetParam(), [](Communicator& comm) {
      std::vector<Communicator> own;
      for (int i = 0; i < 3; ++i) own.push_back(comm.duplicate());
      std::vector<std::thread> threads;
      for (Communicator& mine : own) {
        threads.emplace_back([&mine] {
          std::vector<int> data(20'000, 1);
          Request request = mine.all_reduce_async(data, ops::sum, {.timeout = kCallTimeout});
          EXPECT_NO_THROW(request.wait());
          EXPECT_EQ(data.back(), 2);
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
  }
}

TEST_P(Communicators, MayBeSplitOnSeveralThreadsAtOnce) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    constexpr int kThreads = 3;
    std::vector<Communicator> own;
    for (int i = 0; i < kThreads; ++i) own.push_back(comm.duplicate());
    // Several that exist at the same time: one name for two would mix their messages.
    for (int round = 0; round < 10; ++round) {
      std::vector<Communicator> parts(kThreads);
      std::vector<std::thread> threads;
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] { parts[static_cast<std::size_t>(i)] = own[i].duplicate(); });
      }
      for (std::thread& thread : threads) thread.join();
      threads.clear();
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          std::vector<int> data(10, i);
          try {
            const CallOptions options{.timeout = kCallTimeout, .algorithm = "ring"};
            parts[static_cast<std::size_t>(i)].all_reduce(data, ops::sum, options);
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
          }
          EXPECT_EQ(data.back(), 2 * i);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  });
}

TEST_P(Communicators, AMoveEndsTheOneMovedOnto) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator part = comm.duplicate();
    part = comm.duplicate();
    std::vector<int> data{3};
    part.all_reduce(data, ops::sum);
    EXPECT_EQ(data[0], 6);
    Communicator moved = std::move(part);
    EXPECT_TRUE(part.empty());
    moved.barrier();
  });
}

TEST(Spawn, LeavesAliveWhatItsBodiesHaveMovedOut) {
  for (const bool is_world : {true, false}) {
    std::vector<Communicator> kept(2);
    run_ranks(2, "auto", [&](Communicator& world) {
      Communicator part = world.duplicate();
      kept[static_cast<std::size_t>(world.rank())] = std::move(is_world ? world : part);
    });
    std::thread other([&] {
      kept[1].barrier();
      kept[1].abort("on purpose");
    });
    kept[0].barrier();
    try {
      for (;;) kept[0].barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.what();
      EXPECT_EQ(error.rank(), 1) << error.what();
    }
    other.join();
  }
}

// Messages are not counted, which ranks make as many of as they like.
TEST_P(Communicators, FailInTheSameOperationForAllThatAreInIt) {
  run_ranks(3, GetParam(), [](Communicator& world) {
    constexpr int kWhole = 5;
    Communicator comm = world.duplicate();
    std::vector<int> word(1);
    if (comm.rank() == 0) comm.receive(word, 2);
    if (comm.rank() == 2) comm.send(word, 0);
    for (int i = 0; i < kWhole; ++i) comm.barrier();

    Error error{Status()};
    if (comm.rank() == 2) {
      for (const Rank other : {0, 1}) world.receive(word, other);  // which have begun one more
      comm.abort("of the test");
      error = error_of([&] { comm.barrier(); });
    } else {
      Request request = comm.barrier_async();
      world.send(word, 2);
      error = error_of([&] { request.wait(); });
    }
    EXPECT_EQ(error.code(), ErrorCode::kAborted) << error.what();
    EXPECT_EQ(error.failed_in().number, kWhole) << "rank " << comm.rank();
    EXPECT_EQ(error.failed_in().had_begun, comm.rank() != 2);
    EXPECT_EQ(error_of([&] { comm.barrier(); }).failed_in().number, kWhole) << "as it stays";
    const Error refused = error_of([&] { comm.send(word, 7); });
    EXPECT_EQ(refused.failed_in().number, kWhole) << "it ends all calls";
    world.barrier();
  });
}

// As a watchdog does, which does not know that the ranks have gone on with another one.
TEST(Communicator, MayBeMovedOntoAndFromWhileOthersAbortIt) {
  run_ranks(1, "auto", [](Communicator& world) {
    Communicator comm;
    std::atomic<bool> is_over{false};
    std::vector<std::thread> watchdogs;
    for (int i = 0; i < 2; ++i) {
      watchdogs.emplace_back([&] {
        while (!is_over) comm.abort("it takes long");
      });
    }
    for (int i = 0; i < 20'000; ++i) {
      comm = world.duplicate();
      if (i % 2 == 0) const Communicator other(std::move(comm));
    }
    is_over = true;
    for (std::thread& watchdog : watchdogs) watchdog.join();
    EXPECT_EQ(code_of([&] { world.barrier(); }), ErrorCode::kOk);
  });
}

TEST_P(Communicators, SubsetsHaveTheNamedRanksInTheirOrder) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    const std::vector<Rank> ranks{3, 0, 2};
    Communicator part = comm.subset(ranks);
    if (comm.rank() == 1) {
      EXPECT_TRUE(part.empty());
      return;
    }
    ASSERT_EQ(part.size(), 3);
    EXPECT_EQ(ranks[static_cast<std::size_t>(part.rank())], comm.rank());
    std::vector<Rank> all(3);
    part.all_gather(std::vector<Rank>{comm.rank()}, all);
    EXPECT_EQ(all, ranks);
  });
}

TEST_P(Communicators, SubsetsOfStrangeRanksAreRefused) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (const std::vector<Rank>& ranks : {std::vector<Rank>{0, 2}, {-1}, {1, 0, 1}}) {
      try {
        comm.subset(ranks);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      }
    }
    EXPECT_TRUE(comm.subset({}).empty());
    // Both name themselves and not the other.
    try {
      comm.subset(std::vector<Rank>{comm.rank()});
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    }
    comm.barrier();
  });
}

TEST_P(Communicators, SubsetsThatDifferFailOnAllThatAreNamed) {
  using Lists = std::vector<std::vector<Rank>>;
  for (const Lists& lists :
       {Lists{{0, 1}, {1, 0}, {0, 1}, {0, 1}}, Lists{{0, 1, 2}, {0, 1, 3}, {0, 1, 2}, {0, 1, 2}}}) {
    run_ranks(4, GetParam(), [&](Communicator& comm) {
      const auto subset = [&] { return comm.subset(lists[static_cast<std::size_t>(comm.rank())]); };
      if (comm.rank() == 3) {
        EXPECT_TRUE(subset().empty());
      } else if (comm.rank() == 2 && lists[2].size() == 2) {
        EXPECT_TRUE(subset().empty());
      } else {
        try {
          subset();
          ADD_FAILURE() << "rank " << comm.rank() << " accepted";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kMismatch);
          EXPECT_EQ(error.operation(), "subset");
        }
      }
      comm.barrier();
    });
  }
}

TEST_P(Communicators, MayBeClosedWhileAnotherThreadAllocates) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::jthread allocating([&] {
      try {
        for (;;) release(other, allocate(other, 64));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kClosed) << error.what();
      }
    });
    comm.barrier();
    other.close();
  });
}

// Its destructor must need nothing of the communicator that it was made with.
TEST_P(Communicators, SharedBuffersOutliveThem) {
  std::vector<SharedBuffer<float>> kept;
  std::mutex mutex;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    auto part = std::make_unique<Communicator>(comm.duplicate());
    SharedBuffer<float> buffer(*part, 1000);
    std::fill(buffer.begin(), buffer.end(), 1.0F);
    Communicator elsewhere = std::move(*part);
    part.reset();
    SharedBuffer<float> moved(comm, 1);
    moved[0] = 4;
    const SharedBuffer<float>& constant = moved;
    EXPECT_EQ(constant[0], 4);
    moved = std::move(buffer);
    EXPECT_EQ(buffer.size(), 0u);
    ASSERT_EQ(moved.size(), 1000u);
    elsewhere.all_reduce(moved, ops::sum);
    elsewhere.close();
    EXPECT_EQ(moved[999], 2);
    const std::lock_guard guard(mutex);
    kept.push_back(std::move(moved));
  });
  kept.clear();  // the job is over
}

INSTANTIATE_TEST_SUITE_P(Transports, Communicators, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
