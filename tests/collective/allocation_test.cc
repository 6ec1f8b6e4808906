// No collective allocates after its first calls of a shape, and what is lent stays so where memory
// is used up.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "tests/collective/collective_case.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/refused_allocation.h"
#include "tests/support/shared.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

// Buffers of one shape, made once.
struct Shape {
  Collective collective;
  std::size_t count;
  std::vector<float> in;
  std::vector<float> out;
  std::vector<std::size_t> counts;

  Shape(Collective c, std::size_t block, int ranks)
      : collective(c),
        count(block),
        in(block * static_cast<std::size_t>(ranks), 1.0f),
        out(in.size()),
        counts(static_cast<std::size_t>(ranks), block) {}

  Call call() {
    return {.collective = collective,
            .in = collective == Collective::kBroadcast ? out.data() : in.data(),
            .out = out.data(),
            .count = count,
            .type = DataType::kFloat32,
            .op = ops::sum,
            .in_counts = counts,
            .out_counts = counts};
  }
};

constexpr int kQuietRounds = 10;
constexpr int kRoundsMax = 200;

class Allocation : public testing::TestWithParam<const char*> {};

// Runs `call` on the shapes, round after round, until no rank allocates any more. Which rank is
// ahead differs from call to call, and with it how long queues get: they find their size in some
// rounds, and stay.
template <typename Run>
void expect_quiet(Communicator& comm, std::vector<Shape>& shapes, const Run& run) {
  int quiet = 0;
  std::string guilty;
  for (int round = 0; round < kRoundsMax && quiet < kQuietRounds; ++round) {
    std::int32_t noisy = 0;
    for (Shape& shape : shapes) {
      const Call call = shape.call();
      const std::uint64_t before = allocations;
      run(call);
      const std::uint64_t made = allocations - before;
      if (made == 0) continue;
      noisy = 1;
      guilty = std::string(name_of(shape.collective)) + " of " + std::to_string(shape.count) +
               " made " + std::to_string(made) + " in round " + std::to_string(round);
    }
    comm.all_reduce(&noisy, &noisy, 1, DataType::kInt32, ops::max);
    quiet = noisy != 0 ? 0 : quiet + 1;
  }
  EXPECT_EQ(quiet, kQuietRounds) << "rank " << comm.rank() << ": " << guilty;
}

constexpr std::size_t kCounts[] = {4, 3000, 100'000};

TEST_P(Allocation, EndsWithTheFirstCallsOfAShape) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<Shape> shapes;
    for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
      for (const std::size_t count : kCounts) {
        shapes.emplace_back(static_cast<Collective>(c), count, comm.size());
      }
    }
    expect_quiet(comm, shapes, [&](const Call& call) { comm.run(call); });
  });
}

// To the next rank, and on when it has come around.
TEST_P(Allocation, EndsWithTheFirstMessagesOfASize) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<Shape> shapes;
    for (const std::size_t count : kCounts) {
      for (const Collective collective : {Collective::kSend, Collective::kReceive}) {
        shapes.emplace_back(collective, count, comm.size());
      }
      if (comm.rank() != 0) std::swap(shapes[shapes.size() - 2], shapes.back());
    }
    expect_quiet(comm, shapes, [&](Call call) {
      const int step = call.collective == Collective::kSend ? 1 : comm.size() - 1;
      call.peer = (comm.rank() + step) % comm.size();
      comm.run(call);
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Allocation, testing::Values("auto", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// A receive that is detached: whichever allocation fails, the buffer goes when the message is in
// it, and not before. The message is sent when an allocation has failed, or none has.
TEST_P(Allocation, ThatFailsReleasesNoBufferOfADetachedCall) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  constexpr std::uint64_t kMost = 20;  // more than there are
  std::atomic<std::uint64_t> failed = 0;
  std::atomic<bool> is_detached = false;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    for (std::uint64_t nth = 1; nth <= kMost; ++nth) {
      const auto tag = static_cast<Tag>(nth);
      was_refused = is_detached = false;
      comm.barrier();
      if (comm.rank() == 1) {
        while (!was_refused && !is_detached) std::this_thread::yield();
        comm.send(std::vector<int>{7}, 0, tag);
        comm.barrier();
        continue;
      }
      std::atomic<int> found = -1;
      auto* const buffer = new std::vector<int>(1);
      std::shared_ptr<std::vector<int>> owner(buffer, [&found](std::vector<int>* released) {
        const int value = released->front();
        delete released;
        found = value;
      });
      Request request = comm.receive_async(*buffer, 1, tag);
      refused_allocation = allocations + nth;
      request.detach(std::move(owner));
      is_detached = true;
      failed += allocations >= std::exchange(refused_allocation, 0) ? 1 : 0;
      EXPECT_TRUE(request.test()) << "an empty one";
      while (found == -1) std::this_thread::yield();
      EXPECT_EQ(found, 7) << "released with allocation " << nth << " refused";
      comm.barrier();
    }
  });
  EXPECT_GT(failed, 0U) << "no allocation was refused";
  EXPECT_LT(failed, kMost) << "there are more of them than were tried";
}

// How a call ended on the thread on which an allocation was refused.
enum class End { kWell, kByError, kByBadAlloc };

template <typename Run>
End end_of(const Run& run) {
  try {
    run();
    return End::kWell;
  } catch (const Error&) {
    return End::kByError;
  } catch (const std::bad_alloc&) {
    return End::kByBadAlloc;
  }
}

// A call of rank 0, and what rank 1 does once that has begun or has ended.
struct LentCall {
  const char* name;
  Request (*start)(Communicator&, std::vector<int>&);
  void (*peer)(Communicator&, std::vector<int>&);
  std::uint64_t tried = 300;  // of its allocations; there are fewer
  bool gives = false;         // rank 1 reads the buffer
};

const LentCall kLentCalls[]{
    {"receive_async",
     [](Communicator& comm, std::vector<int>& data) { return comm.receive_async(data, 1); },
     [](Communicator& comm, std::vector<int>& data) { comm.send(data, 0); }},
    {"broadcast_async",
     [](Communicator& comm, std::vector<int>& data) { return comm.broadcast_async(data, 1); },
     [](Communicator& comm, std::vector<int>& data) { comm.broadcast(data, 1); }},
    {"receive",
     [](Communicator& comm, std::vector<int>& data) {
       comm.receive(data, 1, 0, {.timeout = std::chrono::milliseconds(1)});
       return Request();
     },
     [](Communicator& comm, std::vector<int>& data) { comm.send(data, 0); },
     20},  // some while it waits; those after its deadline take a decision each
};

// Rank 0's part. False: none of its allocations was refused.
bool start_and_check(Communicator& comm, Communicator& other, const LentCall& call,
                     std::size_t count, std::uint64_t nth, std::atomic<bool>& has_begun) {
  std::vector<int> data(count, -1);
  Request request;
  refused_allocation = allocations + nth;
  const End end = end_of([&] { request = call.start(other, data); });
  const bool was_last = allocations < std::exchange(refused_allocation, 0);
  has_begun = true;
  if (end == End::kWell) request.wait();
  comm.barrier();
  has_begun = false;
  EXPECT_EQ(data, std::vector<int>(count, end == End::kWell ? 7 : -1))
      << call.name << " of " << count << " with allocation " << nth << " refused";
  EXPECT_EQ(other.status().ok(), end == End::kWell) << call.name;
  return !was_last;
}

// Whichever allocation of a call fails: nothing is written to its buffer once it has thrown, and
// the others do not wait for it.
TEST_P(Allocation, ThatFailsLendsNoBufferOfACallThatThrew) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  std::atomic<bool> has_begun = false;
  run_ranks(2, GetParam(), [&](Communicator& comm) {
    for (const LentCall& call : kLentCalls) {
      for (const std::size_t count : {100UL, 50'000UL}) {
        std::int32_t goes_on = 1;
        for (std::uint64_t nth = 1; goes_on != 0 && nth <= call.tried; ++nth) {
          Communicator other = comm.duplicate();  // whose first call allocates most
          if (comm.rank() == 0) {
            goes_on = start_and_check(comm, other, call, count, nth, has_begun) ? 1 : 0;
          } else {
            std::vector<int> data(count, 7);
            while (!has_begun && comm.status().ok()) std::this_thread::yield();
            static_cast<void>(end_of([&] { call.peer(other, data); }));
            comm.barrier();
          }
          comm.broadcast(&goes_on, 1, DataType::kInt32, 0);
        }
      }
    }
  });
}

// Whose buffer rank 1 reads.
const LentCall kGivenCalls[]{
    {"send_async",
     [](Communicator& comm, std::vector<int>& data) { return comm.send_async(data, 1); },
     [](Communicator& comm, std::vector<int>& data) { comm.receive(data, 0); }, 0, true},
    {"broadcast_async from here",
     [](Communicator& comm, std::vector<int>& data) { return comm.broadcast_async(data, 0); },
     [](Communicator& comm, std::vector<int>& data) { comm.broadcast(data, 0); }, 0, true},
};

// A job whose rank 0 has no memory from the nth allocation of its call on until that is over, and
// then overwrites its buffer. False: it made fewer.
bool run_without_memory(const LentCall& call, std::size_t count, const char* transport,
                        std::uint64_t nth) {
  const std::string what = std::string(call.name) + " of " + std::to_string(count) +
                           " without memory from allocation " + std::to_string(nth) + " on";
  std::atomic<bool> has_begun = false, has_ended = false;
  std::atomic<bool> was_one_refused = false, was_well = false;
  run_ranks(2, transport, [&](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<int> data(count, comm.rank() == 0 ? -1 : 7);
    if (comm.rank() == 1) {
      while (!has_begun) std::this_thread::yield();
      const End end = end_of([&] { call.peer(other, data); });
      if (end == End::kWell) {
        EXPECT_EQ(data, std::vector<int>(count, call.gives ? -1 : 7)) << what;
      }
      // It is told, whatever it calls.
      ErrorCode told = ErrorCode::kOk;
      try {
        other.barrier();
      } catch (const Error& error) {
        told = error.code();
      }
      EXPECT_TRUE(was_well || (told != ErrorCode::kOk && told != ErrorCode::kTimeout)) << what;
      has_ended = true;
      return;
    }
    std::atomic<int> completed = 0;
    bool has_request = false;
    refused_from = allocations + nth;
    has_begun = true;
    end_of([&] {
      Request request = call.start(other, data);
      request.on_completion([&](const Status&) { ++completed; });
      has_request = true;
      request.wait();
    });
    was_one_refused = allocations >= std::exchange(refused_from, 0);
    std::fill(data.begin(), data.end(), 99);
    was_well = other.status().ok();  // what threw may come behind the call, and so may a failure
    if (was_well) static_cast<void>(end_of([&] { other.barrier(); }));
    while (!has_ended) static_cast<void>(comm.status());  // it goes on with something else
    while (has_request && completed == 0) std::this_thread::yield();  // it may be another thread's
    EXPECT_EQ(completed, has_request ? 1 : 0) << what;
    EXPECT_EQ(data, std::vector<int>(count, 99)) << what;
  });
  return was_one_refused;
}

// Its calls end, nobody reads or writes their buffers any more, its destructors end no process, and
// the other rank is told.
TEST_P(Allocation, ThatFailsForGoodEndsTheCallEverywhere) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto run_all = [](const LentCall& call, std::size_t count) {
    int refused = 0;
    for (std::uint64_t nth = 1; nth < 60 && run_without_memory(call, count, GetParam(), nth);
         ++nth) {
      ++refused;
    }
    EXPECT_GT(refused, 1) << call.name;
  };
  for (const LentCall& call : kLentCalls) run_all(call, 100);
  for (const LentCall& call : kGivenCalls) {
    for (const std::size_t count : {100UL, 100'000UL}) run_all(call, count);
  }
}

// Without any memory in its whole process the calls of a rank end by their deadlines at the latest,
// and the other one is told once there is some again.
TEST_P(Allocation, ThatFailsOnEveryThreadEndsCallsEverywhere) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  struct Board {
    std::atomic<bool> has_ended = false, has_heard = false;
    Outcome heard;
  };
  for (const bool is_polled : {false, true}) {
    SCOPED_TRACE(is_polled ? "test()" : "on_completion()");
    Shared<Board> board;
    const auto run_without_memory = [&](Communicator& comm) {
      std::vector<int> data(100);
      std::atomic<int> completed = 0;
      Request request =
          comm.all_reduce_async(data, ops::sum, {.timeout = std::chrono::milliseconds(100)});
      request.on_completion([&](const Status&) { ++completed; });
      refused_everywhere = Refused::kAllButControl;
      while (is_polled ? !request.test() : completed == 0) std::this_thread::yield();
      refused_everywhere = Refused::kNone;
      board->has_ended = true;
      while (!board->has_heard) static_cast<void>(comm.status());
    };
    const auto hear = [&](Communicator& comm) {
      while (!board->has_ended) std::this_thread::yield();
      std::vector<int> data(100);
      board->heard = outcome_of([&] {
        for (;;) comm.all_reduce(data, ops::sum);  // the first may have its result
      });
      board->has_heard = true;
    };
    spawn(2,
          [&](Communicator& comm) {
            comm.barrier();
            comm.rank() == 0 ? run_without_memory(comm) : hear(comm);
          },
          {.as = SpawnOptions::As::kProcesses, .transport = GetParam()});
    EXPECT_EQ(board->heard.code, ErrorCode::kOutOfResources) << board->heard.message;
    EXPECT_EQ(board->heard.rank, 0) << board->heard.message;
  }
}

// A rank that cannot hear what the job says does not stay, deaf: its process ends.
TEST(AllocationOfTheControlThread, ThatFailsEndsTheProcessAndIsTold) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  struct Board {
    std::atomic<bool> has_begun = false;
    Outcome heard[2];
  };
  Shared<Board> board;
  const auto body = [&](Communicator& comm) {
    Communicator other = comm.duplicate();
    other.barrier();
    if (comm.rank() == 2) {
      refused_everywhere = Refused::kAll;
      board->has_begun = true;
      for (;;) std::this_thread::yield();
    }
    if (comm.rank() == 1) {
      while (!board->has_begun) std::this_thread::yield();
      other.abort("rank 2 is to hear of this");
    }
    board->heard[comm.rank()] = outcome_of([&] { comm.barrier(); });
  };
  EXPECT_THROW(spawn(3, body, {.as = SpawnOptions::As::kProcesses}), Error);
  for (const Outcome& heard : board->heard) {
    EXPECT_EQ(heard.code, ErrorCode::kRankFailed) << heard.message;
    EXPECT_EQ(heard.rank, 2) << heard.message;
  }
}

// Of a message that came before anybody waits for it, in a call of another communicator.
TEST_P(Allocation, ThatFailsForAMessageFailsItsCommunicatorAlone) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  run_ranks(2, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kBytes = 30'000;
    Communicator other = comm.duplicate();
    std::vector<char> message(kBytes), word(1);
    const Rank peer = 1 - comm.rank();
    if (comm.rank() == 1) {
      was_refused = false;
      refused_bytes = kBytes;  // the barrier's last look may find the message
    }
    comm.barrier();
    if (comm.rank() == 0) {
      other.send(message, peer);
      comm.send(word, peer);
    } else {
      comm.receive(word, peer);
      refused_bytes = 0;
      EXPECT_TRUE(was_refused);
    }
    try {
      if (comm.rank() == 1) other.receive(message, peer);
      other.barrier();
      ADD_FAILURE() << "rank " << comm.rank() << " has missed nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfResources) << error.what();
      EXPECT_EQ(error.rank(), 1) << error.what();
    }
    comm.barrier();
  });
}

// The rank that leaves is told by the other one alone, whichever allocation failed, and the next
// communicator works. `leave` may throw.
template <typename Leave>
void expect_to_leave(Communicator& comm, const Leave& leave) {
  std::int32_t goes_on = 1;
  for (std::uint64_t nth = 1; goes_on != 0; ++nth) {
    Communicator other = comm.duplicate();
    other.barrier();
    if (comm.rank() == 0) {
      refused_allocation = allocations + nth;
      leave(other);
      goes_on = allocations < std::exchange(refused_allocation, 0) ? 0 : 1;
      if (!other.empty()) other.close();
    } else {
      std::vector<int> data(1);
      EXPECT_EQ(end_of([&] { other.receive(data, 0); }), End::kByError);
    }
    comm.broadcast(&goes_on, 1, DataType::kInt32, 0);
  }
}

TEST_P(Allocation, ThatFailsWhileItClosesLeavesItToBeClosedAgain) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  run_ranks(2, GetParam(), [](Communicator& comm) {
    expect_to_leave(comm, [](Communicator& other) { end_of([&] { other.close(); }); });
  });
}

TEST_P(Allocation, ThatFailsInADestructorEndsNoProcess) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  run_ranks(2, GetParam(), [](Communicator& comm) {
    expect_to_leave(comm, [](Communicator& other) { other = Communicator(); });
  });
}

// Nobody waits for a rank that will not come.
TEST_P(Allocation, ThatFailsInASplitIsToldToTheOthers) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::int32_t goes_on = 1;
    Communicator parent;  // closed when both have answered: its members are told of that, too
    for (std::uint64_t nth = 1; goes_on != 0; ++nth) {
      parent = comm.duplicate();
      if (comm.rank() == 0) {
        refused_allocation = allocations + nth;
        const End end = end_of([&] { parent.duplicate(); });
        goes_on = allocations < std::exchange(refused_allocation, 0) ? 0 : 1;
        EXPECT_TRUE(goes_on != 0 || end == End::kWell);
      } else {
        EXPECT_EQ(end_of([&] { parent.duplicate().barrier(); }), End::kByError);
      }
      comm.broadcast(&goes_on, 1, DataType::kInt32, 0);
    }
  });
}

// What a split has reserved of shared memory goes back where memory is used up before it has told
// the others.
TEST(AllocationOfASplit, ThatFailsLosesNoSharedMemory) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  constexpr int kBlocks = 1024;  // that ranks of a host have
  run_ranks(2, "auto", [](Communicator& comm) {
    Communicator own = comm.split(comm.rank());  // nobody else waits for its calls
    const auto calls = [&] {
      return own.traffic().calls[static_cast<std::size_t>(Collective::kAllGather)];
    };
    const auto fails_with_allocation = [&](std::uint64_t nth) {
      refused_allocation = allocations + nth;
      try {
        own.duplicate();
        refused_allocation = 0;
        return false;
      } catch (const std::bad_alloc&) {
        refused_allocation = 0;
        return true;
      }
    };
    own.duplicate();
    // The last one before the second of its calls, which tells what was reserved.
    std::uint64_t last = 0;
    for (std::uint64_t nth = 1, made = 0; made < 2; ++nth) {
      const std::uint64_t before = calls();
      if (!fails_with_allocation(nth)) continue;
      made = calls() - before;
      if (made == 1) last = nth;
    }
    ASSERT_GT(last, 0U);
    for (int i = 0; i < kBlocks; ++i) ASSERT_TRUE(fails_with_allocation(last));
    EXPECT_NE(own.duplicate().describe().find("shared memory"), std::string::npos);
    comm.barrier();
  });
}

TEST(AllocationCounter, Counts) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const std::uint64_t before = allocations;
  const std::vector<int> data(100);
  EXPECT_GT(allocations, before);
}

}  // namespace
}  // namespace unisono::test
