// The backend for shared memory: its calls have their turns, end with the group, and a blocking one
// that is tried goes on with a request.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <vector>

#include "backend/shared_memory_backend.h"
#include "backend/started_call.h"
#include "native/large_call.h"
#include "native_ranks.h"
#include "tests/support/awaited_ranks.h"
#include "tests/support/deaf_host.h"
#include "tests/support/give_way.h"

namespace unisono::test {
namespace {

constexpr int kRanks = 2;

// The backend of one rank, which takes its group.
struct SharedMemoryRank {
  explicit SharedMemoryRank(TestRank& rank)
      : mine(static_cast<std::uint8_t>(rank.self + 1)),
        backend(std::move(rank.group), {engine, calls, traffic, recorder, [](const Status&) {}},
                kRanks) {}

  Operation& start(StartedCall& call) {
    call.reset({.collective = Collective::kAllGather,
                .in = &mine,
                .out = all,
                .count = 1,
                .type = DataType::kUint8});
    call.choice = {};
    call.record = record_of(call.call);
    call.backend = &backend;
    return **backend.start(call, {});
  }
  CallRecord record_of(const Call& call) const {
    return make_record(call, Order::kAny, calls.digest(), kRecordSelected);
  }
  std::uint64_t counted_with(Rank peer) {
    return traffic.report().by_peer[static_cast<std::size_t>(peer)].messages_sent;
  }

  DeafHost host;
  Engine engine{host, kRanks, 0, IdleChoice("yield", {})};
  CallHistory calls;
  TrafficCounter traffic{kRanks};
  recorder::CallRecorder recorder{nullptr, 1};
  std::uint8_t mine, all[kRanks] = {};
  SharedMemoryBackend backend;
};

void finish(Operation& operation) {
  while (!operation.advance()) give_way();
}

void expect_none(const std::vector<std::string>& failures) {
  for (const std::string& failure : failures) ADD_FAILURE() << failure;
}

TEST(SharedMemoryBackend, RunsItsCallsOneAfterTheOther) {
  std::latch looked(1);
  expect_none(run_threads(kRanks, {}, [&](TestRank& rank) {
    SharedMemoryRank here(rank);
    StartedCall first, second;
    if (rank.self == 1) looked.wait();
    Operation& one = here.start(first);
    Operation& two = here.start(second);
    rank.check(!here.backend.is_idle(), "two calls run");
    rank.check(first.sequence == 0 && second.sequence == 1, "calls are numbered as they start");
    if (rank.self == 0) {
      rank.check(!two.advance(), "the second one has no turn");
      rank.check(!one.advance(), "the first one waits for a peer that has not begun");
      rank.check(awaited_by(one) == std::vector<Rank>{1}, "it says for whom");
      rank.check(awaited_by(two) == std::vector<Rank>{1}, "so does the call behind it");
      looked.count_down();
    }
    finish(one);
    finish(two);
    rank.check(one.status().ok() && two.status().ok(), "both succeed");
    rank.check(here.all[0] == 1 && here.all[1] == 2, "with what all gave");
    rank.check(here.backend.is_idle(), "nothing runs any more");
    rank.check(here.counted_with(1 - rank.self) == 2, "both are counted");
  }));
}

TEST(SharedMemoryBackend, LetsNoCallBeginAfterAFailure) {
  std::latch both_failed(kRanks);
  expect_none(run_threads(kRanks, {}, [&](TestRank& rank) {
    SharedMemoryRank here(rank);
    StartedCall first, second;
    Operation& one = here.start(first);
    Operation& two = here.start(second);
    const Status cause(ErrorCode::kAborted, "enough", 1);
    if (rank.self == 0) here.backend.group()->raise(cause.code(), cause.rank());
    while (!here.backend.has_failed()) give_way();
    rank.check(!one.advance() && awaited_by(one).empty(), "it never begins");
    rank.check(here.backend.group()->starts() == 0, "nor did anything before");
    for (Operation* operation : {&one, &two}) operation->fail(cause);
    rank.check(two.status().message() == "enough", "it has the cause");
    rank.check(here.backend.is_idle(), "nothing runs any more");
    rank.check(here.counted_with(1 - rank.self) == 0, "nothing is counted");
    both_failed.arrive_and_wait();  // the group is the other one's, too
  }));
}

TEST(SharedMemoryBackend, GoesOnWithABlockingCallWhosePeerIsLate) {
  std::latch tried(1);
  expect_none(run_threads(kRanks, {}, [&](TestRank& rank) {
    SharedMemoryRank here(rank);
    const Call barrier{.collective = Collective::kBarrier};
    if (rank.self == 1) tried.wait();
    Status failure;
    const Tried outcome = here.backend.try_run(barrier, {}, Order::kAny, here.record_of(barrier),
                                               AccessPath::kAutomatic, &failure);
    rank.check(failure.ok(), failure.message());
    if (rank.self == 0) {
      rank.check(outcome == Tried::kGoesOn, "its peer has not begun");
      tried.count_down();
    }
    if (outcome != Tried::kGoesOn) return;
    StartedCall call;
    call.reset(barrier);
    Operation& operation = *here.backend.go_on(call);
    rank.check(call.backend == &here.backend && !here.backend.is_idle(), "it has a request");
    finish(operation);
    rank.check(operation.status().ok() && here.backend.is_idle(), "which ends as any other");
  }));
}

// The engine looks at its deadline.
TEST(SharedMemoryBackend, GoesOnWithABlockingCallThatTakesLong) {
  expect_none(run_threads(kRanks, {}, [](TestRank& rank) {
    SharedMemoryRank here(rank);
    constexpr std::size_t kCount = 4 * native::kTurnBytes / sizeof(int);
    const std::vector<int> in(kCount, rank.self + 1);
    std::vector<int> out(kCount * kRanks);
    Call gather{.collective = Collective::kAllGather, .in = in.data(), .out = out.data()};
    gather.count = kCount;
    gather.type = DataType::kInt32;
    Status failure;
    rank.check(here.backend.try_run(gather, {}, Order::kAny, here.record_of(gather),
                                    AccessPath::kAutomatic, &failure) == Tried::kGoesOn,
               "it has a request");
    StartedCall call;
    call.reset(gather);
    Operation& operation = *here.backend.go_on(call);
    int turns = 0;
    while (!operation.advance()) {
      turns += operation.can_go_on() ? 1 : 0;
      give_way();
    }
    rank.check(turns > 2, "it comes back in between");
    rank.check(operation.status().ok(), "it succeeds");
    const auto middle = out.begin() + kCount;
    rank.check(std::all_of(out.begin(), middle, [](int value) { return value == 1; }) &&
                   std::all_of(middle, out.end(), [](int value) { return value == 2; }),
               "with what both gave");
    rank.check(here.counted_with(1 - rank.self) == 1, "it is counted once");
  }));
}

TEST(SharedMemoryBackend, RepeatsTheLastCallAndCountsItEachTime) {
  expect_none(run_threads(1, {}, [](TestRank& rank) {
    SharedMemoryRank here(rank);
    Call call{.collective = Collective::kBarrier};
    Status failure;
    rank.check(here.backend.try_again(call, &failure) == Tried::kNotBegun, "there is no last call");
    rank.check(here.backend.try_run(call, {}, Order::kAny, here.record_of(call),
                                    AccessPath::kAutomatic, &failure) == Tried::kOver,
               "a rank alone waits for nobody");
    rank.check(here.backend.try_again(call, &failure) == Tried::kOver, "it is the same call");
    call.count = 1;
    rank.check(here.backend.try_again(call, &failure) == Tried::kNotBegun, "it is another one");
    here.backend.count_last();
    rank.check(here.calls.next() == 2, "each has a number");
    rank.check(here.traffic.report().calls[static_cast<std::size_t>(Collective::kBarrier)] == 2,
               "each is counted");
  }));
}

}  // namespace
}  // namespace unisono::test
