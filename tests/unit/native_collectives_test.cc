// The native collectives against an oracle: every collective, group size, edge count and access
// path, with ranks as threads and as processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/collective.h"
#include "native_oracle.h"
#include "tests/support/segment_bytes.h"
#include "tests/support/shared.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

using testing::IsEmpty;

// Around the inline payload (8 elements), the cell (4096), a chunk (65536), and several chunks.
constexpr std::size_t kCounts[] = {0, 1, 2, 7, 8, 9, 511, 4095, 4096, 4097, 16411, 65537, 140009};

struct Matrix {
  bool heap = false;
  bool in_place = true;  ///< large buffers are read where they are, and go through no window
};

// One call before any that needs a window: later ones do where their output covers their input.
void see_which_way_large_buffers_go(TestRank& rank, const Matrix& matrix) {
  const std::size_t before = reserved_segment_bytes();
  rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");  // everyone has looked
  OracleCase one{Collective::kAllGather, 100003};
  one.heap = matrix.heap;
  run_and_check(rank, one);
  const bool grew = reserved_segment_bytes() > before;
  rank.check(grew != matrix.in_place || rank.size == 1,
             grew ? "large buffers went through the window" : "large buffers went another way");
  rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
}

void run_matrix(TestRank& rank, const Matrix& matrix) {
  see_which_way_large_buffers_go(rank, matrix);
  std::size_t number = static_cast<std::size_t>(rank.size);
  for (const Collective collective : all_collectives()) {
    for (const std::size_t count : kCounts) {
      if (rank.size > 3 && test::is_anothers_case(++number, 5)) continue;
      for (const bool in_place : {false, true}) {
        if (in_place && facts_of(collective).is_uneven) continue;
        const Rank root = static_cast<Rank>(count % static_cast<std::size_t>(rank.size));
        const std::size_t misalign = count % 2 == 1 ? 4 : 0;
        run_and_check(rank, {collective, count, root, in_place, matrix.heap, misalign});
        if (!rank.failures.empty()) return;
      }
    }
  }
}

class NativeMatrix : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, NativeMatrix, testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(NativeMatrix, ThreadsThroughWindows) {
  EXPECT_THAT(run_threads(GetParam(), {.access = AccessPath::kWindow},
                          [](TestRank& rank) { run_matrix(rank, {.in_place = false}); }),
              IsEmpty());
}

TEST_P(NativeMatrix, ThreadsReadEachOthersMemory) {
  EXPECT_THAT(run_threads(GetParam(), {.access = AccessPath::kAutomatic},
                          [](TestRank& rank) { run_matrix(rank, {}); }),
              IsEmpty());
}

TEST_P(NativeMatrix, ProcessesThroughWindows) {
  EXPECT_THAT(run_processes(GetParam(), {.access = AccessPath::kWindow},
                            [](TestRank& rank) { run_matrix(rank, {.in_place = false}); }),
              IsEmpty());
}

TEST_P(NativeMatrix, ProcessesThroughStreamedWindows) {
  EXPECT_THAT(run_processes(GetParam(), {.access = AccessPath::kStreamed},
                            [](TestRank& rank) { run_matrix(rank, {.in_place = false}); }),
              IsEmpty());
}

TEST_P(NativeMatrix, ProcessesStreamResultsInTheirHeaps) {
  EXPECT_THAT(run_processes(GetParam(), {.access = AccessPath::kStreamed},
                            [](TestRank& rank) { run_matrix(rank, {.heap = true}); }),
              IsEmpty());
}

TEST_P(NativeMatrix, ProcessesReadEachOthersHeaps) {
  EXPECT_THAT(run_processes(GetParam(), {.access = AccessPath::kMapped},
                            [](TestRank& rank) { run_matrix(rank, {.heap = true}); }),
              IsEmpty());
}

TEST_P(NativeMatrix, ProcessesBySingleCopy) {
  if (!processes_read_each_other()) GTEST_SKIP() << kUnreadable;
  EXPECT_THAT(run_processes(GetParam(), {.access = AccessPath::kSingleCopy},
                            [](TestRank& rank) { run_matrix(rank, {}); }),
              IsEmpty());
}

// To a host that hands lines over at once every output has left the caches.
TEST(NativeCollectives, OutputsAreTheSamePastTheCaches) {
  RanksOptions options{.access = AccessPath::kMapped};
  options.known.host.waits[kLineWait] = 1;
  for (const int n : {2, 3}) {
    EXPECT_THAT(
        run_processes(n, options, [](TestRank& rank) { run_matrix(rank, {.in_place = false}); }),
        IsEmpty());
  }
}

// What could be read when the ranks met, and cannot any more.
TEST(NativeCollectives, ProcessesThatMayNotBeReadAnyMoreUseWindows) {
  EXPECT_THAT(run_processes(2, {.access = AccessPath::kSingleCopy},
                            [](TestRank& rank) {
                              prctl(PR_SET_DUMPABLE, 0);
                              run_matrix(rank, {.in_place = false});
                            }),
              IsEmpty());
}

TEST(NativeCollectives, RanksMayChooseDifferentPaths) {
  for (const int n : {2, 3, 4}) {
    EXPECT_THAT(run_processes(n, {.access = AccessPath::kMapped},
                              [](TestRank& rank) {
                                for (const Collective collective : all_collectives()) {
                                  OracleCase one{collective, 100003};
                                  one.heap = rank.self % 2 == 0;
                                  run_and_check(rank, one);
                                }
                              }),
                IsEmpty());
  }
}

// As where one of them sets UNISONO_ACCESS, and the others try paths.
TEST(NativeCollectives, OneRankMayChooseOnePath) {
  EXPECT_THAT(
      run_processes(2, {},
                    [](TestRank& rank) {
                      if (rank.self == 1) rank.access = AccessPath::kMapped;
                      for (const Collective collective :
                           {Collective::kBroadcast, Collective::kGather, Collective::kScatter}) {
                        for (const Rank root : {0, 1}) {
                          OracleCase one{collective, 8192, root};
                          one.heap = false;
                          for (int call = 0; call < 64; ++call) run_and_check(rank, one);
                        }
                      }
                    }),
      IsEmpty());
}

TEST(NativeCollectives, EveryRootWorks) {
  EXPECT_THAT(
      run_threads(5, {.access = AccessPath::kWindow},
                  [](TestRank& rank) {
                    for (const Collective collective :
                         {Collective::kBroadcast, Collective::kReduce, Collective::kGather,
                          Collective::kScatter, Collective::kGatherV, Collective::kScatterV}) {
                      for (Rank root = 0; root < rank.size; ++root) {
                        for (const std::size_t count : {3u, 5000u, 70000u}) {
                          run_and_check(rank, {collective, count, root});
                        }
                      }
                    }
                  }),
      IsEmpty());
}

// Rank 0's first advance() meets nobody and stops in the middle of filling, at a page that cannot
// be read, until rank 1 has combined all it can. Then rank 1 has drained the slot that rank 0 would
// fill next, and rank 0 has combined nothing yet.
std::atomic<int> g_peer_waits{0};
std::atomic<int> g_page_faults{0};
void* g_page = nullptr;

void open_page_when_the_peer_waits(int) {
  g_page_faults.fetch_add(1);
  while (g_peer_waits.load() == 0) sched_yield();
  mprotect(g_page, shm::kPageBytes, PROT_READ | PROT_WRITE);
}

TEST(NativeCollectives, SlotsAreNotFilledBeforeTheirRankHasCombined) {
  constexpr std::size_t kSlotElements = shm::kWindowSlotBytes / sizeof(int);
  // The last chunk is cut into shorter parts, so that parts of both chunks overlap in the slot.
  constexpr std::size_t kCount = kSlotElements * shm::kWindowSlots + kSlotElements / 2;
  g_peer_waits = g_page_faults = 0;
  struct sigaction before = {}, during = {};
  during.sa_handler = open_page_when_the_peer_waits;
  ASSERT_EQ(sigaction(SIGSEGV, &during, &before), 0);
  const auto body = [](TestRank& rank) {
    const auto reduction = compute::Reduction::make(DataType::kInt32, ops::sum, rank.size);
    auto* const in = static_cast<int*>(mmap(nullptr, kCount * sizeof(int), PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::vector<int> out(kCount);
    for (std::size_t i = 0; i < kCount; ++i) in[i] = static_cast<int>(i) * (rank.self + 1);
    if (rank.self == 0) {
      // In the last slot, behind the part of its input that rank 0 combines without a copy.
      g_page = in + kSlotElements * shm::kWindowSlots - kSlotElements / 4;
      mprotect(g_page, shm::kPageBytes, PROT_NONE);
    } else {
      while (g_page_faults.load() == 0) sched_yield();
      rank.on_stall = [](Operation&) { g_peer_waits.store(1); };
    }
    Call call;
    call.collective = Collective::kReduce;
    call.in = in;
    call.out = out.data();
    call.count = kCount;
    call.type = DataType::kInt32;
    rank.check(rank.run(call, &*reduction).ok(), "reduce");
    for (std::size_t i = 0; rank.self == 0 && i < kCount; ++i) {
      if (out[i] == static_cast<int>(i) * 3) continue;
      rank.check(false, "element " + std::to_string(i) + " is " + std::to_string(out[i]));
      break;
    }
    munmap(in, kCount * sizeof(int));
  };
  EXPECT_THAT(run_threads(2, {.access = AccessPath::kWindow}, body), IsEmpty());
  EXPECT_EQ(g_page_faults.load(), 1);
  sigaction(SIGSEGV, &before, nullptr);
}

TEST(NativeCollectives, AverageAndPremultipliedSumHoldOnEveryPath) {
  for (const AccessPath access :
       {AccessPath::kWindow, AccessPath::kAutomatic, AccessPath::kStreamed}) {
    const auto body = [](TestRank& rank) {
      for (const std::size_t count : {6, 2400, 150'006}) {
        for (const ReduceOp& op : {ops::average, ops::premultiplied_sum(rank.self + 1)}) {
          const auto reduction = compute::Reduction::make(DataType::kFloat32, op, rank.size);
          std::vector<float> in(count), out(count);
          for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 100 + 12);
          const int factor = rank.size * (rank.size + 1) / 2;
          const bool averages = op.kind == OpKind::kAverage;
          Call call;
          call.collective = Collective::kAllReduce;
          call.in = in.data();
          call.out = out.data();
          call.count = count;
          call.type = DataType::kFloat32;
          rank.check(rank.run(call, &*reduction).ok(), "all_reduce");
          for (std::size_t i = 0; i < count; ++i) {
            const float wanted = averages ? in[i] : in[i] * static_cast<float>(factor);
            if (out[i] != wanted) return rank.check(false, "element " + std::to_string(i));
          }
          call.collective = Collective::kReduce;
          call.root = rank.size - 1;
          std::fill(out.begin(), out.end(), 0.f);
          rank.check(rank.run(call, &*reduction).ok(), "reduce");
          for (std::size_t i = 0; i < count && rank.self == call.root; ++i) {
            const float wanted = averages ? in[i] : in[i] * static_cast<float>(factor);
            if (out[i] != wanted) return rank.check(false, "reduced " + std::to_string(i));
          }
          call.collective = Collective::kReduceScatter;
          call.count = count / static_cast<std::size_t>(rank.size);
          rank.check(rank.run(call, &*reduction).ok(), "reduce_scatter");
          const std::size_t at = call.count * static_cast<std::size_t>(rank.self);
          for (std::size_t i = 0; i < call.count; ++i) {
            const float wanted = averages ? in[at + i] : in[at + i] * static_cast<float>(factor);
            if (out[i] != wanted) return rank.check(false, "scattered " + std::to_string(i));
          }
        }
      }
    };
    for (const int ranks : {2, 3}) {
      EXPECT_THAT(run_threads(ranks, {.access = access}, body), IsEmpty());
    }
  }
}

// The same bits for all sizes of chunk and part, because the tree is over ranks alone.
TEST(NativeCollectives, SmallAndLargeReductionsFollowTheSameTree) {
  const auto body = [](TestRank& rank) {
    const auto reduction = compute::Reduction::make(DataType::kFloat32, ops::sum, rank.size);
    constexpr std::size_t kCount = 40000;
    const auto input_of = [](int source, std::size_t i) {
      return std::ldexp(1.0f + static_cast<float>((i * 37 + static_cast<std::size_t>(source)) % 91),
                        (source * 7 + static_cast<int>(i % 13)) % 20);
    };
    std::vector<float> in(kCount), large(kCount), small(kCount);
    for (std::size_t i = 0; i < kCount; ++i) in[i] = input_of(rank.self, i);
    Call call;
    call.collective = Collective::kAllReduce;
    call.type = DataType::kFloat32;
    call.in = in.data();
    call.out = large.data();
    call.count = kCount;
    rank.check(rank.run(call, &*reduction).ok(), "large");
    for (std::size_t i = 0; i < kCount; i += 1000) {
      call.in = in.data() + i;
      call.out = small.data() + i;
      call.count = 1000;
      rank.check(rank.run(call, &*reduction).ok(), "small");
    }
    rank.check(std::memcmp(large.data(), small.data(), kCount * sizeof(float)) == 0,
               "large and small differ");
  };
  EXPECT_THAT(run_threads(5, {.access = AccessPath::kWindow}, body), IsEmpty());
}

TEST(NativeFailures, MismatchNamesBothRanksAndCalls) {
  for (const std::size_t count : {4, 100000}) {
    const auto body = [count](TestRank& rank) {
      const auto reduction = compute::Reduction::make(DataType::kInt32, ops::sum, rank.size);
      std::vector<int> data(count + 1);
      Call call;
      call.collective = Collective::kAllReduce;
      call.in = call.out = data.data();
      call.count = count + static_cast<std::size_t>(rank.self);
      call.type = DataType::kInt32;
      const Status status = rank.run(call, &*reduction);
      rank.check(status.code() == ErrorCode::kMismatch, "no mismatch");
      for (int r = 0; r < 2; ++r) {
        const std::string call = "rank " + std::to_string(r) + " called all_reduce(count " +
                                 std::to_string(count + static_cast<std::size_t>(r));
        rank.check(status.message().find(call) != std::string::npos, status.message());
      }
      rank.check(!rank.run(call, &*reduction).ok(), "the group still works");
    };
    EXPECT_THAT(run_threads(2, {.access = AccessPath::kWindow}, body), IsEmpty());
  }
}

TEST(NativeFailures, PairsOfCountsThatDisagreeAreAMismatch) {
  const auto body = [](TestRank& rank) {
    const std::vector<int> in(8);
    std::vector<int> out(8);
    const std::size_t give[] = {3, 3};
    const std::size_t take[] = {3, rank.self == 0 ? std::size_t{4} : std::size_t{3}};
    Call call;
    call.collective = Collective::kAllToAllV;
    call.in = in.data();
    call.out = out.data();
    call.type = DataType::kInt32;
    call.in_counts = give;
    call.out_counts = take;
    const Status status = rank.run(call);
    if (rank.self == 0) {
      rank.check(status.code() == ErrorCode::kMismatch && status.rank() == 1, status.message());
    }
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
}

TEST(NativeFailures, TheFirstRaisedCauseWinsAndIsSeenByAll) {
  const auto body = [](TestRank& rank) {
    if (rank.self == 2) {
      rank.check(rank.group->raise(ErrorCode::kRankFailed, 1), "the first raise lost");
      rank.check(!rank.group->raise(ErrorCode::kAborted, 0), "the second raise won");
    }
    Rank failed_rank = -1;
    while (rank.group->raised(&failed_rank) == ErrorCode::kOk) std::this_thread::yield();
    rank.check(rank.group->raised(&failed_rank) == ErrorCode::kRankFailed && failed_rank == 1,
               "raised");
  };
  EXPECT_THAT(run_threads(3, {}, body), IsEmpty());
}

TEST(NativeFailures, AfterARaiseNobodyReadsAnothersMemory) {
  constexpr std::size_t kCount = 100'000;
  std::atomic<bool> raised{false};
  std::atomic<int> looked{0};
  const auto body = [&](TestRank& rank) {
    std::vector<int> in(kCount, 1);
    std::vector<int> out(kCount * 2, -1);
    Call call;
    call.collective = Collective::kAllGather;
    call.in = in.data();
    call.out = out.data();
    call.count = kCount;
    call.type = DataType::kInt32;
    Operation& operation = rank.start(call);
    if (rank.self == 0) {
      rank.check(!operation.advance(), "finished alone");
      rank.group->raise(ErrorCode::kAborted, 0);
      rank.group->await_readers();
      raised.store(true);
    } else {
      while (!raised.load()) std::this_thread::yield();
      // The other's offer is there; nothing but the raised word keeps this rank from reading.
      for (int look = 0; look < 100; ++look) rank.check(!operation.advance(), "it went on");
      rank.check(out == std::vector<int>(kCount * 2, -1), "it read after the raise");
    }
    ++looked;
    while (looked.load() < 2) std::this_thread::yield();
    operation.fail(Status(ErrorCode::kAborted, "over", 0));
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
}

// Whoever waits for a call looks at deadlines and failures where advance() returns.
TEST(NativeFailures, EndACallInTheMiddleOfItsMemory) {
  constexpr std::size_t kCount = 8 << 20;
  std::atomic<int> stage{0};
  const auto body = [&](TestRank& rank) {
    std::vector<int> data(kCount, rank.self + 1);
    Call call;
    call.collective = Collective::kBroadcast;
    call.in = call.out = data.data();
    call.count = kCount;
    call.type = DataType::kInt32;
    while (stage.load() < rank.self) std::this_thread::yield();
    Operation& operation = rank.start(call);
    rank.check(!operation.advance(), "all at once");
    if (rank.self == 0) {
      stage.store(1);
      while (stage.load() < 2) std::this_thread::yield();
      rank.group->raise(ErrorCode::kAborted, 0);
      stage.store(3);
      while (stage.load() < 4) std::this_thread::yield();
    } else {
      rank.check(data.front() == 1 && data.back() == 2, "it copied nothing, or all");
      stage.store(2);
      while (stage.load() < 3) std::this_thread::yield();
      for (int look = 0; look < 100; ++look) rank.check(!operation.advance(), "it went on");
      rank.check(data.back() == 2, "it copied after the raise");
      stage.store(4);
    }
    operation.fail(Status(ErrorCode::kAborted, "over", 0));
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
}

// Rank 0 gives up, and its buffer is its own again, before rank 1 begins.
void read_after_a_raise(TestRank& rank, bool heap, std::atomic<int>& stage) {
  constexpr std::size_t kCount = 100'000;
  const std::size_t bytes = kCount * sizeof(int);
  std::vector<int> own(kCount);
  void* buffer = own.data();
  if (heap) buffer = *rank.segment->allocate(bytes);
  std::memset(buffer, 0, bytes);
  Call call;
  call.collective = Collective::kBroadcast;
  call.in = call.out = buffer;
  call.count = kCount;
  call.type = DataType::kInt32;
  while (stage.load() < rank.self) std::this_thread::yield();
  Operation& operation = rank.start(call);
  if (rank.self == 0) {
    rank.check(!operation.advance(), "finished alone");
    rank.group->raise(ErrorCode::kAborted, 0);
    rank.group->await_readers();
    std::memset(buffer, 0xff, bytes);
    stage.store(1);
    while (stage.load() < 2) std::this_thread::yield();
  } else {
    for (int look = 0; look < 100; ++look) {
      rank.check(!operation.advance(), "success with what rank 0 has written since");
    }
    stage.store(2);
  }
  operation.fail(Status(ErrorCode::kAborted, "over", 0));
  if (heap) rank.check(rank.segment->release(buffer).ok(), "release");
}

void run_read_after_a_raise(bool heap) {
  Shared<std::atomic<int>> stage;
  const AccessPath access = heap ? AccessPath::kMapped : AccessPath::kSingleCopy;
  const auto body = [&](TestRank& rank) { read_after_a_raise(rank, heap, *stage); };
  EXPECT_THAT(run_processes(2, {.access = access}, body), IsEmpty());
}

TEST(NativeFailures, WhatAnotherProcessTookBackFromItsHeapIsNotASuccess) {
  run_read_after_a_raise(true);
}

TEST(NativeFailures, WhatAnotherProcessTookBackIsNotASuccess) {
  if (!processes_read_each_other()) GTEST_SKIP() << kUnreadable;
  run_read_after_a_raise(false);
}

TEST(NativeFailures, ARaisedRankThatDoesNotExistIsNobody) {
  const auto body = [](TestRank& rank) {
    auto segment_group = rank.segment->open_group(1, {0, 1});
    rank.check(segment_group.has_value(), "open_group");
    shm::GroupHeader& header = (*segment_group)->header();
    native::Group group(std::move(*segment_group));
    for (const std::uint64_t failed_word : {3ull, 1ull << 33, ~0ull >> 8}) {
      header.raised.store(failed_word << 8 | static_cast<std::uint64_t>(ErrorCode::kAborted));
      Rank failed_rank = 7;
      rank.check(group.raised(&failed_rank) == ErrorCode::kAborted, "the cause is lost");
      rank.check(failed_rank == -1, "it names rank " + std::to_string(failed_rank));
    }
    for (const std::uint64_t word : {2ull << 8, 2ull << 8 | 0xff}) {
      header.raised.store(word);
      rank.check(group.raised(nullptr) == ErrorCode::kProtocol, "no cause is one");
    }
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
}

// Rank 2 stays away until rank 0 or 1 waits for it alone; the other may be waiting for that one
// too.
void run_without_rank_two(TestRank& rank, const OracleCase& one, std::atomic<int>& named) {
  // Enough calls to fill all cells and the window: then who only gives waits as well.
  constexpr int kCalls = 8;
  if (rank.self == 2) {
    while (named.load() == 0) std::this_thread::yield();
  } else {
    rank.on_stall = [&](Operation& operation) {
      std::vector<Rank> missing;
      operation.waiting_for(&missing);
      if (missing == std::vector<Rank>{2}) named.store(1);
    };
  }
  for (int call = 0; call < kCalls && rank.failures.empty(); ++call) run_and_check(rank, one);
  rank.on_stall = nullptr;
  rank.check(named.load() == 1, describe(one) + ": rank 2 was not named");
  named.store(1);
}

class NativeWaits : public testing::TestWithParam<Collective> {};
INSTANTIATE_TEST_SUITE_P(Collectives, NativeWaits, testing::ValuesIn(all_collectives()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(NativeWaits, NameWhoIsMissing) {
  for (const AccessPath access :
       {AccessPath::kWindow, AccessPath::kStreamed, AccessPath::kAutomatic}) {
    for (const std::size_t count : {1, 100'000}) {
      for (const Rank root : {0, 1, 2}) {
        if (is_anothers_case(static_cast<std::size_t>(GetParam()) + (count > 1 ? 1 : 0) +
                                 static_cast<std::size_t>(root),
                             3)) {
          continue;
        }
        std::atomic<int> named{0};
        const OracleCase one{GetParam(), count, root};
        EXPECT_THAT(run_threads(3, {.access = access},
                                [&](TestRank& rank) { run_without_rank_two(rank, one, named); }),
                    IsEmpty());
      }
    }
  }
}

// Heaps of processes make direct inputs with results in the window, and the other way round.
TEST(NativeFailures, AReductionOfMixedPathsNamesWhoIsMissing) {
  for (const bool heap_of_two : {false, true}) {
    Shared<std::atomic<int>> named;
    const auto body = [&](TestRank& rank) {
      const bool heap = (rank.self == 2) == heap_of_two;
      run_without_rank_two(
          rank, {.collective = Collective::kReduce, .count = 300'000, .root = 0, .heap = heap},
          *named);
    };
    EXPECT_THAT(run_processes(3, {.access = AccessPath::kMapped}, body), IsEmpty());
  }
}

TEST(NativeGroup, LeavingIsSeenByTheOthers) {
  const auto body = [](TestRank& rank) {
    const Call barrier;
    rank.check(!rank.group->has_left(1), "left before it said so");
    rank.check(rank.run(barrier).ok(), "barrier");
    if (rank.self == 1) return rank.group->leave();
    while (!rank.group->has_left(1)) std::this_thread::yield();
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
}

TEST(NativeGroup, EightMembersStayBelowSixteenMebibytesEach) {
  const auto body = [](TestRank& rank) {
    run_and_check(rank, {Collective::kAllReduce, 1 << 20});
    run_and_check(rank, {Collective::kAllToAll, 1 << 16});
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
    const std::size_t each = reserved_segment_bytes() / static_cast<std::size_t>(rank.size);
    rank.check(each > shm::kWindowBytes, "no window was reserved");
    rank.check(each < (std::size_t{16} << 20), "too much is reserved");
  };
  EXPECT_THAT(run_threads(8, {.access = AccessPath::kWindow}, body), IsEmpty());
}

}  // namespace
}  // namespace unisono::test
