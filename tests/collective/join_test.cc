// Communicators that ranks make through a store, as frameworks make their groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/map_store.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const InitOptions kOptions{.timeout = std::chrono::seconds(20)};

// Each by a thread of its own.
void run_joined(Store& store, const std::string& name, int size,
                const std::function<void(Communicator&)>& body) {
  std::vector<std::jthread> ranks;
  for (Rank rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        Communicator comm = join(store, name, rank, size, kOptions);
        EXPECT_EQ(comm.rank(), rank);
        EXPECT_EQ(comm.size(), size);
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << name << ", rank " << rank << ": " << error.what();
      }
    });
  }
}

void expect_sum(Communicator& comm, std::size_t count) {
  std::vector<int> data(count, comm.rank() + 1);
  comm.all_reduce(data, ops::sum);
  EXPECT_EQ(data, std::vector<int>(count, comm.size() * (comm.size() + 1) / 2));
}

void expect_sum_of_ones(Communicator& comm) {
  std::vector<int> data(1000, 1);
  comm.all_reduce(data, ops::sum);
  EXPECT_EQ(data, std::vector<int>(1000, comm.size()));
}

TEST(Join, RanksMeetUnderANameAgainAndAgain) {
  MapStore store;
  for (const std::string name : {"first", "second", "third"}) {
    run_joined(store, name, 3, [](Communicator& comm) { expect_sum(comm, 10'000); });
  }
}

TEST(Join, SeveralAreMadeAndUsedAtOnceByDifferentThreads) {
  MapStore store;
  std::vector<std::jthread> jobs;
  for (int job = 0; job < 4; ++job) {
    jobs.emplace_back([&store, job] {
      run_joined(store, "group " + std::to_string(job), 2, [](Communicator& comm) {
        for (int round = 0; round < 5; ++round) expect_sum(comm, 1000);
      });
    });
  }
}

TEST(Join, OneThreadMayHaveSeveral) {
  MapStore store;
  const auto both = [&store](Rank rank) {
    Communicator plain = join(store, "plain", rank, 2, kOptions);
    Communicator reversed = join(store, "reversed", 1 - rank, 2, kOptions);
    for (Communicator* comm : {&plain, &reversed}) expect_sum(*comm, 100);
    EXPECT_EQ(plain.rank(), 1 - reversed.rank());
  };
  std::jthread other([&] { both(1); });
  both(0);
}

// Each of the calls only sends, and is over before it has heard of anybody.
TEST(Join, AGroupOfCallsOfSeveralJobsHearsOfAFailureInEither) {
  MapStore store;
  const InitOptions options{.transport = "tcp", .timeout = std::chrono::seconds(20)};
  std::atomic<bool> is_over = false;
  std::jthread other([&] {
    Communicator first = join(store, "first", 1, 2, options);
    Communicator second = join(store, "second", 1, 2, options);
    for (Communicator* comm : {&first, &second}) comm->barrier();
    second.abort("of the test");
    is_over.wait(false);
  });
  Communicator first = join(store, "first", 0, 2, options);
  Communicator second = join(store, "second", 0, 2, options);
  for (Communicator* comm : {&first, &second}) comm->barrier();
  int value = 7;
  const Call call{.collective = Collective::kBroadcast,
                  .in = &value,
                  .out = &value,
                  .count = 1,
                  .type = DataType::kInt32};
  const std::vector<MemberCall> calls{{&first, call}, {&second, call}};
  ErrorCode code = ErrorCode::kOk;
  for (int made = 0; made < 500 && code == ErrorCode::kOk; ++made) {
    try {
      group(calls);
      std::this_thread::sleep_for(milliseconds(10));  // the word is on its way
    } catch (const Error& error) {
      code = error.code();
    }
  }
  EXPECT_EQ(code, ErrorCode::kAborted);
  is_over = true;
  is_over.notify_all();
}

// The one that is over is found whichever job it is of.
TEST(Join, RequestsOfSeveralJobsAreWaitedForTogether) {
  MapStore store;
  std::atomic<bool> is_one_over = false;
  constexpr std::size_t kLarge = 500'000;  // it needs both ranks until it is over
  std::jthread other([&] {
    Communicator first = join(store, "first", 1, 2, kOptions);
    Communicator second = join(store, "second", 1, 2, kOptions);
    std::vector<int> got(kLarge);
    second.receive(got, 0);
    second.send(got, 0);
    is_one_over.wait(false);
    first.receive(got, 0);
    first.send(got, 0);
  });
  Communicator first = join(store, "first", 0, 2, kOptions);
  Communicator second = join(store, "second", 0, 2, kOptions);
  const std::vector<int> sent(kLarge, 7);
  std::vector<int> by_first(kLarge), by_second(kLarge);
  Request first_sent = first.send_async(sent, 1), second_sent = second.send_async(sent, 1);
  const auto tell = [&](void*) {
    is_one_over = true;
    is_one_over.notify_all();
  };
  std::unique_ptr<void, decltype(tell)> told(&is_one_over, tell);  // also where something throws
  std::vector<Request> requests;
  requests.push_back(first.receive_async(by_first, 1));
  requests.push_back(second.receive_async(by_second, 1));
  EXPECT_EQ(wait_any(requests), 1U);
  told.reset();
  EXPECT_EQ(by_second, sent);
  requests[1] = Request();
  EXPECT_EQ(wait_any(requests), 0U);
  EXPECT_EQ(by_first, sent);
  first_sent.wait();
  second_sent.wait();
}

TEST(Join, GoesBesideInit) {
  MapStore store;
  Communicator world = init({.rank = 0, .size = 1});
  run_joined(store, "beside", 2, [](Communicator& comm) { expect_sum(comm, 10); });
  Communicator alone = join(store, "alone", 0, 1, kOptions);
  expect_sum(alone, 10);
  expect_sum(world, 10);
}

// What it held is the last of its rank's job then, whose threads end: its own is one of them.
TEST(Join, ACallbackMayBeTheLastToHaveMemoryOfTheJob) {
  MapStore store;
  std::atomic<bool> is_registered = false, is_running = false, is_closed = false, is_over = false;
  const auto first = [&] {
    Communicator comm = join(store, "held", 0, 2, kOptions);
    auto buffer = std::make_shared<SharedBuffer<int>>(comm, 1000);
    std::vector<int> data(1000, 1);
    Request request = comm.all_reduce_async(data, ops::sum);
    request.on_completion([&, buffer = std::move(buffer)](const Status&) mutable {
      is_running = true;
      while (!is_closed) std::this_thread::yield();
      buffer.reset();
      is_over = true;
    });
    is_registered = true;
    while (!is_running) std::this_thread::yield();  // on the library's own thread
  };
  std::jthread second([&] {
    Communicator comm = join(store, "held", 1, 2, kOptions);
    while (!is_registered) std::this_thread::yield();
    expect_sum_of_ones(comm);
  });
  first();
  is_closed = true;
  while (!is_over) std::this_thread::yield();
}

TEST(Join, RefusesWhatDoesNotExist) {
  MapStore store;
  const auto message = [&](std::string_view name, Rank rank, int size, const InitOptions& options) {
    try {
      join(store, name, rank, size, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message("", 0, 1, {}), HasSubstr("needs a name"));
  EXPECT_THAT(message("a", 2, 2, {}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(message("a", -1, 2, {}), HasSubstr("rank -1 of 2"));
  EXPECT_THAT(message("a", 0, 0, {}), HasSubstr("rank 0 of 0"));
  EXPECT_THAT(message("a", 0, 1, {.rank = 0}), HasSubstr("from its arguments"));
  EXPECT_THAT(message("a", 0, 1, {.store = &store}), HasSubstr("from its arguments"));
}

TEST(Join, SaysWhoDidNotCome) {
  MapStore store;
  try {
    join(store, "lonely", 0, 2, {.timeout = milliseconds(300)});
    ADD_FAILURE() << "joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRendezvous);
    EXPECT_EQ(error.rank(), 1);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 of 2"));
  }
}

}  // namespace
}  // namespace unisono::test
