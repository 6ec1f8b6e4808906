// Native calls one after another: cells and windows are used again, and some ranks are ahead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>

#include "base/collective.h"
#include "native_oracle.h"

namespace unisono::test {
namespace {

using testing::IsEmpty;

// Cells are reused every fourth call; roots that only write run a call ahead of their readers.
void run_mixed_calls(TestRank& rank, int calls) {
  std::uint32_t random = 12345;
  for (int i = 0; i < calls && rank.failures.empty(); ++i) {
    random = random * 1664525 + 1013904223;
    const Collective collective = all_collectives()[(random >> 8) % all_collectives().size()];
    const std::size_t count = (random >> 12) % 50 == 0 ? 20000 : (random >> 16) % 40;
    const Rank root = static_cast<Rank>((random >> 24) % static_cast<std::uint32_t>(rank.size));
    run_and_check(rank, {collective, count, root});
  }
}

TEST(NativeCollectives, TenThousandMixedCallsBackToBack) {
  for (const int n : {2, 3}) {
    EXPECT_THAT(run_threads(n, {}, [](TestRank& rank) { run_mixed_calls(rank, 10000); }),
                IsEmpty());
    EXPECT_THAT(run_processes(n, {}, [](TestRank& rank) { run_mixed_calls(rank, 10000); }),
                IsEmpty());
  }
}

// Two members write in turn into each other's windows, but for calls in which only one gives.
TEST(NativeCollectives, MixedLargeCallsOfTwoThatTakeTurns) {
  const auto body = [](TestRank& rank) {
    std::minstd_rand random(54321);
    for (int i = 0; i < 1000 && rank.failures.empty(); ++i) {
      const Collective collective = all_collectives()[random() % all_collectives().size()];
      const bool has_many_chunks = random() % 30 == 0;
      const std::size_t count = has_many_chunks ? 700001 : 3000 + random() % 65536;
      const Rank root = static_cast<Rank>(random() % 2);
      if (random() % 16 == static_cast<unsigned>(rank.self)) {
        for (int turn = 0; turn < 300; ++turn) std::this_thread::yield();  // the other is ahead
      }
      run_and_check(rank, {collective, count, root});
    }
  };
  EXPECT_THAT(run_threads(2, {.access = AccessPath::kWindow}, body), IsEmpty());
  EXPECT_THAT(run_processes(2, {.access = AccessPath::kWindow}, body), IsEmpty());
}

TEST(NativeCollectives, BroadcastsToASlowReaderAreNotOverwritten) {
  std::atomic<int> started{0};
  const auto body = [&started](TestRank& rank) {
    constexpr int kCalls = 64;
    if (rank.self == 0) {
      // The root starts what it can; the reader has not called yet.
      int finished_ahead = 0;
      for (int i = 0; i < kCalls; ++i) {
        int data[4] = {i, i, i, i};
        Call call;
        call.collective = Collective::kBroadcast;
        call.in = call.out = data;
        call.count = 4;
        call.type = DataType::kInt32;
        Operation& operation = rank.start(call);
        if (started.load() == 0) {
          if (operation.advance()) {
            ++finished_ahead;
            continue;
          }
          started.store(1);
        }
        rank.check(rank.finish(operation).ok(), "broadcast at the root");
      }
      rank.check(finished_ahead == 1,
                 "the root was not held up: " + std::to_string(finished_ahead));
      return;
    }
    while (started.load() == 0) std::this_thread::yield();
    for (int i = 0; i < kCalls; ++i) {
      int data[4] = {};
      Call call;
      call.collective = Collective::kBroadcast;
      call.in = call.out = data;
      call.count = 4;
      call.type = DataType::kInt32;
      rank.check(rank.run(call).ok() && data[0] == i && data[3] == i,
                 "call " + std::to_string(i) + " got " + std::to_string(data[0]));
    }
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
}

}  // namespace
}  // namespace unisono::test
