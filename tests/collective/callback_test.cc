// What runs when a call is over: on which thread, in which order, and what it may do.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tests/collective/rank_sums.h"
#include "tests/support/rank_job.h"
#include "tests/support/setting.h"
#include "tests/support/tested_transports.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

class Callbacks : public testing::TestWithParam<std::string> {};

TEST_P(Callbacks, RunOnceInTheirOrderWithTheOutcome) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int64_t> data = filled(comm.rank(), 50'000);
    std::string order;
    Request request = comm.all_reduce_async(data, ops::sum);
    std::atomic<bool> called = false;
    request.on_completion([&](const Status& outcome) {
      EXPECT_TRUE(outcome.ok()) << outcome.message();
      EXPECT_EQ(data, total(2, 50'000));
      order += 'a';
    });
    request.on_completion([&](const Status&) {
      order += 'b';
      called = true;
    });
    while (!called) std::this_thread::yield();  // nobody waits for the call
    EXPECT_TRUE(request.test());
    called = false;
    request.on_completion([&](const Status&) {
      order += 'c';
      called = true;
    });
    while (!called) std::this_thread::yield();  // the first two may not have returned yet
    EXPECT_EQ(order, "abc");
    Request().on_completion([&](const Status& outcome) { order += outcome.ok() ? 'd' : 'x'; });
    EXPECT_EQ(order, "abcd");
  });
}

// With the engine's lock held the call would wait for it for ever.
TEST_P(Callbacks, MayStartCalls) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<std::int64_t> first = filled(comm.rank(), 10'000), second = first;
    std::atomic<bool> is_over = false;
    Request request = comm.all_reduce_async(first, ops::sum);
    request.on_completion([&](const Status&) {
      other.all_reduce(second, ops::sum);
      is_over = true;
    });
    while (!is_over) std::this_thread::yield();
    EXPECT_EQ(second, total(2, 10'000));
    comm.barrier();
  });
}

TEST_P(Callbacks, ThatAreEmptyAreRefused) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int64_t> data = filled(comm.rank(), 10);
    Request running = comm.all_reduce_async(data, ops::sum);
    Request empty;
    for (Request* request : {&running, &empty}) {
      try {
        request->on_completion({});
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      }
    }
    running.wait();
    EXPECT_EQ(data, total(2, 10));
  });
}

// A call that only this rank makes. `code`: what its callback hears.
Request start_and_note(Communicator& comm, std::vector<std::int64_t>& data, ErrorCode* code) {
  Request request = comm.all_reduce_async(data, ops::sum);
  request.on_completion([code](const Status& outcome) { *code = outcome.code(); });
  return request;
}

TEST_P(Callbacks, HearOfAFailure) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<std::int64_t> data(10);
    ErrorCode code = ErrorCode::kOk;
    Request request;
    if (comm.rank() == 0) {
      request = start_and_note(other, data, &code);
      EXPECT_EQ(code, ErrorCode::kOk) << "it cannot be over";
    }
    if (comm.rank() == 1) comm.barrier();  // who closes first is the one that has left
    other.close();
    EXPECT_EQ(code, comm.rank() == 0 ? ErrorCode::kClosed : ErrorCode::kOk);
    if (comm.rank() == 0) comm.barrier();
  });
}

TEST_P(Callbacks, MayLetGoOfTheRequestAndGoOnWithItsOutcome) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int64_t> data = filled(1, 1000), other = data;
    auto request = std::make_unique<Request>(comm.all_reduce_async(data, ops::sum));
    request->wait();
    ErrorCode code = ErrorCode::kSystem;
    request->on_completion([&](const Status& outcome) {
      request.reset();
      comm.all_reduce(other, ops::sum);  // in the place of the one that was let go
      code = outcome.code();
    });
    EXPECT_EQ(code, ErrorCode::kOk);
  });
}

TEST_P(Callbacks, MayDropTheCommunicatorWhileItIsClosed) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    auto other = std::make_unique<Communicator>(comm.duplicate());
    std::vector<std::int64_t> data(10);
    Communicator* const closed = other.get();
    if (comm.rank() == 0) {
      Request request = closed->all_reduce_async(data, ops::sum);
      request.on_completion([&](const Status& outcome) {
        EXPECT_EQ(outcome.code(), ErrorCode::kClosed);
        *closed = Communicator();  // the last that has it, but for close()
      });
      request.detach(nullptr);
    }
    if (comm.rank() == 1) comm.barrier();
    closed->close();
    EXPECT_EQ(closed->empty(), comm.rank() == 0);
    if (comm.rank() == 0) comm.barrier();
  });
}

// What a thread may be in when the communicator fails: what it is told then.
struct Wait {
  const char* name;
  Status (*outcome)(Communicator&);
};

template <typename Run>
Status outcome_of(const Run& run) {
  try {
    run();
    return Status();
  } catch (const Error& error) {
    return Status(error.code(), error.what());
  }
}

const Wait kWaits[]{
    {"barrier", [](Communicator& comm) { return outcome_of([&] { comm.barrier(); }); }},
    {"receive",
     [](Communicator& comm) {
       std::vector<int> data(1);
       return outcome_of([&] { comm.receive(data, 1); });
     }},
    {"group",
     [](Communicator& comm) {
       const MemberCall call{&comm, {.collective = Collective::kBarrier}};
       return outcome_of([&] { group({&call, 1}); });
     }},
    {"split", [](Communicator& comm) { return outcome_of([&] { comm.split(0); }); }},
    {"subset",
     [](Communicator& comm) { return outcome_of([&] { comm.subset(std::vector<Rank>{0}); }); }},
    {"status",
     [](Communicator& comm) {
       Status status;
       while (status.ok()) status = comm.status();
       return status;
     }},
};

// Rank 1 ends the communicator in which rank 0 waits. True there where rank 0 was in it when its
// callback ran, and not the library's own thread, which may not touch it.
bool drop_while_waiting(Communicator& comm, const Wait& wait, bool detaches) {
  Communicator other = comm.duplicate();
  std::vector<int> word(1);
  if (comm.rank() == 1) {
    comm.receive(word, 0);
    other.abort("of the test");
    return false;
  }
  bool was_here = false;
  std::atomic<bool> is_over = false;
  Request request = other.receive_async(word, 1, Tag(7));
  request.on_completion([&, waiting = std::this_thread::get_id()](const Status&) {
    was_here = std::this_thread::get_id() == waiting;
    if (was_here) other = Communicator();  // the last that has it, but for who waits
    is_over = true;
  });
  if (detaches) request.detach(nullptr);
  comm.send(std::vector<int>{1}, 1);
  EXPECT_EQ(wait.outcome(other).code(), ErrorCode::kAborted) << wait.name;
  while (!is_over) std::this_thread::yield();
  EXPECT_EQ(other.empty(), was_here) << wait.name;
  return was_here;
}

TEST_P(Callbacks, MayDropTheCommunicatorThatItsThreadWaitsIn) {
  constexpr int kRoundsMax = 100;
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (const Wait& wait : kWaits) {
      for (const bool detaches : {false, true}) {
        int was_here = 0;
        for (int round = 0; was_here == 0 && round < kRoundsMax; ++round) {
          was_here = drop_while_waiting(comm, wait, detaches) ? 1 : 0;
          comm.broadcast(&was_here, 1, DataType::kInt32, 0);
        }
        EXPECT_EQ(was_here, 1) << wait.name << ": the waiting thread ran no callback";
      }
    }
  });
}

// Calls that are made of several collectives.
const Wait kComposites[]{
    {"all_reduce_addends",
     [](Communicator& comm) {
       const std::vector<float> addend(1'000'000, 1);
       std::vector<float> out(addend.size());
       const std::array<const void*, 1> addends{addend.data()};
       return outcome_of([&] {
         all_reduce_addends(comm, addends, out.data(), out.size(), DataType::kFloat32, ops::sum);
       });
     }},
    {"all_gather_objects",
     [](Communicator& comm) {
       const std::vector<std::byte> object(3'000'000);
       return outcome_of([&] { all_gather_objects(comm, object, {.staging_bytes = 100'000}); });
     }},
    {"stream_gather_objects",
     [](Communicator& comm) {
       const std::vector<std::byte> object(300'000);
       return outcome_of([&] {
         stream_gather_objects(comm, ObjectSource(object), 0, [](const ObjectPiece&) {},
                               {.staging_bytes = 5'000});
       });
     }},
};

// Rank 0's communicator is destroyed somewhere in the midst of the call. True where that was.
// `is_inside`: rank 0, in the call.
bool destroy_in_the_midst(Communicator& comm, const Wait& call, std::atomic<bool>& is_inside) {
  auto other = std::make_unique<Communicator>(comm.duplicate());
  Communicator& given = *other;
  if (comm.rank() == 1) {
    std::thread sender([&] {
      while (!is_inside) std::this_thread::yield();
      comm.send(std::vector<int>{1}, 0);
    });
    const ErrorCode code = call.outcome(given).code();
    EXPECT_TRUE(code == ErrorCode::kOk || code == ErrorCode::kRankLeft) << call.name;
    sender.join();
    return false;
  }
  bool was_here = false;
  std::atomic<bool> is_over = false;
  std::vector<int> word(1);
  Request request = comm.receive_async(word, 1);
  request.on_completion([&, waiting = std::this_thread::get_id()](const Status&) {
    was_here = std::this_thread::get_id() == waiting;
    if (was_here) other.reset();
    is_over = true;
  });
  is_inside = true;
  const ErrorCode code = call.outcome(given).code();
  EXPECT_TRUE(code == ErrorCode::kOk || code == ErrorCode::kClosed) << call.name;
  while (!is_over) std::this_thread::yield();
  is_inside = false;
  return was_here && code == ErrorCode::kClosed;
}

// Over connections: who waits in shared memory looks at others' messages but now and then. Whether
// the thread that waits runs the callback, and where in the call, is a matter of luck: calls are
// made until it was so three times, but not for ever.
TEST(CallbacksOverTcp, MayDestroyTheCommunicatorInTheMidstOfSeveralCollectives) {
  const int rounds_max = is_sanitized() ? 30 : 100;
  std::atomic<bool> is_inside = false;
  run_ranks(2, "tcp", [&](Communicator& comm) {
    for (const Wait& call : kComposites) {
      int were_here = 0;
      for (int round = 0; were_here < 3 && round < rounds_max; ++round) {
        were_here += destroy_in_the_midst(comm, call, is_inside) ? 1 : 0;
        comm.broadcast(&were_here, 1, DataType::kInt32, 0);
      }
    }
  });
}

// A call that fails the communicator when it begins.
TEST_P(Callbacks, MayDropTheCommunicatorWhoseCallCannotBegin) {
  const Setting little("UNISONO_SCRATCH_BYTES", "1M");
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int64_t> data(1'000'000);
    const CallOptions too_much{.algorithm = "recursive_doubling"};
    for (const bool is_asynchronous : {false, true}) {
      for (const bool detaches : {false, true}) {
        Communicator other = comm.duplicate();
        if (comm.rank() == 0) {
          std::vector<int> word(1);
          Request request = other.receive_async(word, 1);
          const auto caller = std::this_thread::get_id();
          request.on_completion([&](const Status&) {
            EXPECT_EQ(std::this_thread::get_id(), caller);
            other = Communicator();
          });
          if (detaches) request.detach(nullptr);
          const Status outcome = outcome_of([&] {
            if (is_asynchronous) {
              other.all_reduce_async(data, ops::sum, too_much);
            } else {
              other.all_reduce(data, ops::sum, too_much);
            }
          });
          EXPECT_EQ(outcome.code(), ErrorCode::kOutOfResources) << outcome.message();
          EXPECT_TRUE(other.empty());
        }
        comm.barrier();
      }
    }
  });
}

// A call of the only rank is over at once.
TEST_P(Callbacks, ThatMakeEachOtherDoNotNest) {
  run_ranks(1, GetParam(), [](Communicator& comm) {
    int left = 1000, depth = 0, deepest = 0;
    std::vector<int> data(1);
    std::function<void(const Status&)> next = [&](const Status&) {
      deepest = std::max(deepest, ++depth);
      if (--left > 0) comm.all_reduce_async(data, ops::sum).on_completion(next);
      --depth;
    };
    next(Status());
    EXPECT_EQ(left, 0);
    EXPECT_LE(deepest, 2) << "the first one was called here";
  });
}

// A thread that waits runs the callback, and the library's own goes on meanwhile. Most often it is
// that thread, but the library's own may have found out before it came to rest.
TEST_P(Callbacks, HoldUpNoOtherCallOfTheRank) {
  std::atomic<bool> has_arrived = false;
  constexpr std::size_t kLarge = 500'000;
  constexpr int kRoundsMax = 100;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    enum : Tag { kSmallOne = 1, kLargeOne, kLastOne };
    const std::vector<std::int64_t> sent(kLarge, 7);
    std::vector<std::int64_t> got(kLarge);
    int was_here = 0;  // the callback, on the thread that waited
    for (int round = 0; was_here == 0 && round < kRoundsMax; ++round) {
      comm.broadcast(&round, 1, DataType::kInt32, 0);
      if (comm.rank() == 1) {
        comm.send(std::vector<int>{1}, 0, kSmallOne);
        comm.receive(got, 0, kLargeOne);
        has_arrived = true;
        comm.send(std::vector<int>{1}, 0, kLastOne);
      } else {
        std::vector<int> small(1), last(1);
        Request waited = comm.receive_async(last, 1, kLastOne);
        Request called = comm.receive_async(small, 1, kSmallOne);
        Request large = comm.send_async(sent, 1, kLargeOne);
        std::atomic<bool> is_over = false;
        called.on_completion([&, waiting = std::this_thread::get_id()](const Status&) {
          while (!has_arrived && comm.status().ok()) std::this_thread::yield();
          was_here = std::this_thread::get_id() == waiting ? 1 : 0;
          is_over = true;
        });
        waited.wait();
        large.wait();
        EXPECT_TRUE(has_arrived);
        while (!is_over) std::this_thread::yield();
        has_arrived = false;
      }
      comm.broadcast(&was_here, 1, DataType::kInt32, 0);
    }
    EXPECT_EQ(was_here, 1) << "the waiting thread ran no callback";
  });
}

// As one that needs a mutex which the thread holds that closes the communicator, and with it the
// job: Python's lock, for instance.
TEST_P(Callbacks, MayWaitForTheThreadThatLetsGoOfTheJob) {
  std::atomic<bool> is_asked = false, is_inside = false, has_let_go = false, is_over = false;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    Communicator last = std::move(comm);
    if (last.rank() == 1) {
      while (!is_asked) std::this_thread::yield();
      last.send(std::vector<int>{1}, 0);
      while (!is_inside) std::this_thread::yield();
      return;
    }
    std::vector<int> data(1);
    {
      Request request = last.receive_async(data, 1);
      request.on_completion([&](const Status& outcome) {
        EXPECT_TRUE(outcome.ok()) << outcome.message();
        is_inside = true;
        while (!has_let_go) std::this_thread::yield();
        is_over = true;
      });
      is_asked = true;
      while (!is_inside) std::this_thread::yield();  // in no call: the library's own thread runs it
    }
    { const Communicator gone = std::move(last); }
    EXPECT_FALSE(is_over);
    has_let_go = true;
    while (!is_over) std::this_thread::yield();
  });
}

TEST_P(Callbacks, OfWhatAbortEndsHaveRunWhenItReturns) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<std::int64_t> data(10);
    ErrorCode code = ErrorCode::kOk;
    Request request;
    if (comm.rank() == 0) {
      request = start_and_note(other, data, &code);
      other.abort("of the test");
      EXPECT_EQ(code, ErrorCode::kAborted);
    }
    comm.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Callbacks, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
