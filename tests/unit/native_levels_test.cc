// Domains inside a host: who is grouped with whom, on machines that hwloc makes up, and that
// reductions in two levels are those in one, bit for bit, and read less across. Ranks of these
// tests pretend their domains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "native/levels.h"
#include "native_oracle.h"
#include "tests/support/watchdog.h"
#include "topology/processors.h"
#include "unisono/traffic.h"

namespace unisono::test {
namespace {

using native::Levels;
using native::levels_of;
using testing::IsEmpty;

constexpr Levels kFlat{};

// ---- Grouping -------------------------------------------------------------------------------

/// Where `unisono run` puts as many ranks on such a machine.
std::vector<Place> places_on(const std::string& machine, int ranks,
                             topology::Width width = topology::Width::kCore) {
  const auto processors = topology::made_up_processors(machine);
  EXPECT_TRUE(processors) << processors.status().message();
  std::vector<Place> places;
  for (int rank = 0; processors && rank < ranks; ++rank) {
    const auto cores = topology::recommended_binding(*processors, rank, ranks, width);
    places.push_back(topology::place_of(*processors, cores));
  }
  return places;
}

Levels automatic(const std::vector<Place>& places) { return levels_of(places, {}); }

std::vector<Place> in_nodes(const std::vector<int>& nodes) {
  std::vector<Place> places;
  for (const int node : nodes) places.push_back({-1, node});
  return places;
}

constexpr Levels nodes_of(int ranks) { return {ranks, LevelsBy::kNodes}; }
constexpr Levels caches_of(int ranks) { return {ranks, LevelsBy::kCaches}; }

TEST(NativeLevels, AreTheNodesOfAMachineWithSeveral) {
  EXPECT_EQ(automatic(places_on("numa:2 core:8 pu:1", 16)), nodes_of(8));
  EXPECT_EQ(automatic(places_on("numa:2 l3:1 core:8 pu:2", 16)), nodes_of(8));
  EXPECT_EQ(automatic(places_on("numa:2 core:8 pu:1", 4)), nodes_of(2));
  EXPECT_EQ(automatic(places_on("numa:2 core:8 pu:1", 4, topology::Width::kShare)), nodes_of(2));
  EXPECT_EQ(automatic(places_on("numa:4 core:4 pu:1", 16)), nodes_of(4));
}

TEST(NativeLevels, AreTheCachesOfAMachineWithOneNode) {
  EXPECT_EQ(automatic(places_on("l3:2 core:8 pu:1", 16)), caches_of(8));
  EXPECT_EQ(automatic(places_on("numa:1 l3:4 core:4 pu:2", 16)), caches_of(4));
}

TEST(NativeLevels, OfTwoNodesWithTwoCachesEachAreTheNodesUnlessTold) {
  const std::vector<Place> places = places_on("numa:2 l3:2 core:4 pu:1", 16);
  EXPECT_EQ(automatic(places), nodes_of(8));
  EXPECT_EQ(levels_of(places, {LevelsBy::kNodes}), nodes_of(8));
  EXPECT_EQ(levels_of(places, {LevelsBy::kCaches}), caches_of(4));
  EXPECT_EQ(levels_of(places, {LevelsBy::kCount, 2}), (Levels{2, LevelsBy::kCount}));
  EXPECT_EQ(levels_of(places, {LevelsBy::kOff}), kFlat);
}

TEST(NativeLevels, AreNoneOnASmallMachine) {
  EXPECT_EQ(automatic(places_on("core:2 pu:1", 2)), kFlat);
  EXPECT_EQ(automatic(places_on("l3:1 core:8 pu:1", 8)), kFlat);
  EXPECT_EQ(automatic(places_on("numa:2 core:8 pu:1", 2)), kFlat) << "one rank each";
  EXPECT_EQ(automatic({}), kFlat);
  EXPECT_EQ(automatic({Place{0, 0}}), kFlat);
}

TEST(NativeLevels, AreNoneWhereRanksRunAnywhere) {
  EXPECT_EQ(automatic(places_on("numa:2 core:2 pu:1", 8)), kFlat) << "more ranks than cores";
  EXPECT_EQ(automatic(in_nodes({0, 0, 1, -1})), kFlat);
  EXPECT_EQ(automatic(in_nodes({-1, -1, 1, 1})), kFlat);
}

TEST(NativeLevels, AreNoneWhereTheTreeDoesNotNest) {
  EXPECT_EQ(automatic(places_on("numa:2 core:6 pu:1", 12)), kFlat) << "six are no power of two";
  EXPECT_EQ(automatic(in_nodes({0, 1, 0, 1})), kFlat);
  EXPECT_EQ(automatic(in_nodes({0, 0, 0, 0, 1, 1})), kFlat);
  EXPECT_EQ(automatic(in_nodes({0, 0, 1, 1, 1, 1})), kFlat);
  EXPECT_EQ(automatic(in_nodes({0, 0, 1, 1, 0, 0, 1, 1})), kFlat) << "a domain that comes back";
  EXPECT_EQ(automatic(in_nodes({0, 0, 1, 2})), kFlat);
  // The number of domains is free.
  EXPECT_EQ(automatic(places_on("numa:3 core:4 pu:1", 12)), nodes_of(4));
}

TEST(NativeLevels, AreNoneWhereThatWouldNotHalveWhatCrosses) {
  const std::vector<Place> places = places_on("l3:8 core:2 pu:1", 16);
  EXPECT_EQ(automatic(places), kFlat);
  EXPECT_EQ(levels_of(places, {LevelsBy::kCaches}), caches_of(2));
}

TEST(NativeLevels, OfACountNeedNoMachine) {
  const std::vector<Place> anywhere(8);
  EXPECT_EQ(levels_of(anywhere, {LevelsBy::kCount, 2}), (Levels{2, LevelsBy::kCount}));
  EXPECT_EQ(levels_of(anywhere, {LevelsBy::kCount, 8}), kFlat);
  EXPECT_EQ(levels_of(std::vector<Place>(6), {LevelsBy::kCount, 4}), kFlat);
}

TEST(NativeLevels, SettingsAreReadAsTheyAreShown) {
  for (const char* text : {"auto", "off", "numa", "l3", "2", "64", "128"}) {
    LevelsSetting setting;
    EXPECT_TRUE(parse(text, &setting)) << text;
    EXPECT_EQ(text_of(setting), text);
  }
  for (const char* text : {"", "on", "0", "1", "3", "256", "-2", "2x", " 2", "99999999999"}) {
    LevelsSetting setting{LevelsBy::kCount, 4};
    EXPECT_FALSE(parse(text, &setting)) << text;
    EXPECT_EQ(text_of(setting), "4");
  }
}

// ---- Calls ----------------------------------------------------------------------------------

struct Shape {
  int domains;
  int ranks;  // of each
  int size() const { return domains * ranks; }
};

RanksOptions options_of(const Shape& shape, AccessPath access) {
  return {.access = access, .levels = {shape.ranks, LevelsBy::kCount}};
}

// One chunk, its last part empty; several; more than there are slots.
constexpr std::size_t kReducedCounts[] = {16411, 65537, 140009, 700001};

void run_reductions(TestRank& rank, bool heap) {
  std::size_t number = static_cast<std::size_t>(rank.size);
  for (const std::size_t count : kReducedCounts) {
    for (const bool in_place : {false, true}) {
      if (is_anothers_case(++number, 3)) continue;
      const std::size_t misalign = count == 65537 ? 4 : 0;
      run_and_check(rank, {Collective::kAllReduce, count, 0, in_place, heap, misalign});
      for (const Rank root : {0, rank.size - 2}) {
        run_and_check(rank, {Collective::kReduce, count, root, in_place, heap, misalign});
      }
      // The same windows, otherwise.
      run_and_check(rank, {Collective::kAllGather, count / 4});
      run_and_check(rank, {Collective::kScan, count / 4});
      if (!rank.failures.empty()) return;
    }
  }
}

class NativeLevelShapes : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, NativeLevelShapes,
                         testing::Values(Shape{2, 2}, Shape{2, 4}, Shape{3, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.domains) + "x" +
                                  std::to_string(info.param.ranks);
                         });

TEST_P(NativeLevelShapes, ThreadsThroughWindows) {
  EXPECT_THAT(run_threads(GetParam().size(), options_of(GetParam(), AccessPath::kWindow),
                          [](TestRank& rank) { run_reductions(rank, false); }),
              IsEmpty());
}

TEST_P(NativeLevelShapes, ThreadsReadEachOthersMemory) {
  EXPECT_THAT(run_threads(GetParam().size(), options_of(GetParam(), AccessPath::kMapped),
                          [](TestRank& rank) { run_reductions(rank, false); }),
              IsEmpty());
}

TEST_P(NativeLevelShapes, ProcessesThroughStreamedWindows) {
  EXPECT_THAT(run_processes(GetParam().size(), options_of(GetParam(), AccessPath::kStreamed),
                            [](TestRank& rank) { run_reductions(rank, false); }),
              IsEmpty());
}

TEST_P(NativeLevelShapes, ProcessesReadEachOthersHeaps) {
  EXPECT_THAT(run_processes(GetParam().size(), options_of(GetParam(), AccessPath::kMapped),
                            [](TestRank& rank) { run_reductions(rank, true); }),
              IsEmpty());
}

TEST_P(NativeLevelShapes, ProcessesBySingleCopy) {
  if (!processes_read_each_other()) GTEST_SKIP() << kUnreadable;
  EXPECT_THAT(run_processes(GetParam().size(), options_of(GetParam(), AccessPath::kSingleCopy),
                            [](TestRank& rank) { run_reductions(rank, false); }),
              IsEmpty());
}

TEST(NativeInLevels, RanksMayChooseDifferentPaths) {
  EXPECT_THAT(run_processes(4, options_of({2, 2}, AccessPath::kMapped),
                            [](TestRank& rank) {
                              // Heaps of a domain, of every other rank.
                              for (const bool heap : {rank.self < 2, rank.self % 2 == 0}) {
                                run_reductions(rank, heap);
                              }
                            }),
              IsEmpty());
}

// Bytes of which every element is a finite number, whatever the type: the highest bit of the
// exponent is zero.
std::vector<std::byte> finite_bytes(DataType type, int rank, std::size_t count) {
  const bool is_complex = type == DataType::kComplex64 || type == DataType::kComplex128;
  const std::size_t width = size_of(type) / (is_complex ? 2 : 1);
  std::vector<std::byte> bytes(count * size_of(type));
  std::uint32_t state = 977 * static_cast<std::uint32_t>(rank) + 1;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    state = state * 1664525 + 1013904223;
    const auto value = static_cast<std::byte>(state >> 24);
    bytes[i] = i % width == width - 1 ? value & std::byte{0xbf} : value;
  }
  return bytes;
}

// Neither commutative nor associative.
void combine_oddly(const void* in, void* inout, std::size_t count, DataType type, void*) {
  const auto* left = static_cast<const unsigned char*>(in);
  auto* right = static_cast<unsigned char*>(inout);
  for (std::size_t i = 0; i < count * size_of(type); ++i) {
    right[i] = static_cast<unsigned char>(3 * left[i] + (right[i] >> 1));
  }
}

ReduceOp operator_of(OpKind kind, int rank) {
  if (kind == OpKind::kUser) return ops::user_op("oddly", combine_oddly, nullptr, false);
  return {kind, rank + 0.5};
}

// What the inputs of all ranks come to at once, without any call.
std::vector<std::byte> combined_at_once(DataType type, OpKind kind, Order order, int ranks,
                                        std::size_t count) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const void*> operands;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto reduction = compute::Reduction::make(type, operator_of(kind, rank), ranks, order);
    std::vector<std::byte>& input = inputs.emplace_back(finite_bytes(type, rank, count));
    reduction->prepare(input.data(), input.data(), count);
  }
  for (const std::vector<std::byte>& input : inputs) operands.push_back(input.data());
  const auto reduction = compute::Reduction::make(type, operator_of(kind, 0), ranks, order);
  std::vector<std::byte> result(inputs[0].size());
  reduction->combine_tree(result.data(), operands.data(), ranks, count, false);
  reduction->finish(result.data(), count);
  return result;
}

// Each rank has the result of some calls to look at.
void compare_with_the_tree(TestRank& rank, DataType type, OpKind kind, Order order) {
  constexpr std::size_t kCount = 20011;
  const auto reduction =
      compute::Reduction::make(type, operator_of(kind, rank.self), rank.size, order);
  if (!reduction) return;  // it means nothing on the type
  const std::vector<std::byte> in = finite_bytes(type, rank.self, kCount);
  std::vector<std::byte> out(in.size());
  Call call;
  call.collective = Collective::kAllReduce;
  call.type = type;
  call.in = in.data();
  call.out = out.data();
  call.count = kCount;
  const std::string what = std::string(name_of(type)) + ", " + std::string(name_of(kind));
  rank.check(rank.run(call, &*reduction).ok(), what);
  if (static_cast<int>(rank.sequence) % rank.size != rank.self) return;
  rank.check(out == combined_at_once(type, kind, order, rank.size, kCount),
             what + ": not the same bits");
}

TEST(NativeInLevels, EveryTypeAndOperatorIsCombinedByTheCanonicalTree) {
  const auto body = [](TestRank& rank) {
    std::size_t number = 0;
    for (int type = 0; type < kDataTypeCount; ++type) {
      for (int kind = 0; kind < kOpKindCount; ++kind) {
        if (is_anothers_case(++number, 7)) continue;
        compare_with_the_tree(rank, static_cast<DataType>(type), static_cast<OpKind>(kind),
                              Order::kCanonical);
      }
    }
  };
  for (const AccessPath access : {AccessPath::kWindow, AccessPath::kMapped}) {
    EXPECT_THAT(run_threads(6, options_of({3, 2}, access), body), IsEmpty());
  }
}

TEST(NativeInLevels, TheExactSumIsThatOfAllInputsAtOnce) {
  const auto body = [](TestRank& rank) {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
      compare_with_the_tree(rank, type, OpKind::kSum, Order::kExact);
    }
  };
  EXPECT_THAT(run_threads(4, options_of({2, 2}, AccessPath::kWindow), body), IsEmpty());
}

// ---- What crosses ---------------------------------------------------------------------------

// What all ranks read of other domains' in a call of so many bytes, in these bytes.
double read_across(const Shape& shape, const Levels& levels, Collective collective,
                   std::size_t bytes) {
  std::vector<TrafficReport> reports(static_cast<std::size_t>(shape.size()));
  const auto body = [&](TestRank& rank) {
    TrafficReport& report = reports[static_cast<std::size_t>(rank.self)];
    report.by_peer.resize(static_cast<std::size_t>(rank.size));
    run_and_check(rank, {collective, bytes / sizeof(int), 1});
    rank.group->count_last(collective, 1, &report);
  };
  RanksOptions options{.access = AccessPath::kWindow, .levels = levels};
  EXPECT_THAT(run_threads(shape.size(), options, body), IsEmpty());
  std::uint64_t across = 0;
  for (std::size_t reader = 0; reader < reports.size(); ++reader) {
    for (std::size_t owner = 0; owner < reports.size(); ++owner) {
      const std::uint64_t read = reports[reader].by_peer[owner].bytes_received;
      EXPECT_EQ(read, reports[owner].by_peer[reader].bytes_sent) << owner << " to " << reader;
      const auto ranks = static_cast<std::size_t>(shape.ranks);
      if (reader / ranks != owner / ranks) across += read;
    }
  }
  return static_cast<double>(across) / static_cast<double>(bytes);
}

TEST(NativeInLevels, DomainsCrossOnceAndNotOncePerRank) {
  constexpr std::size_t kBytes = std::size_t{512} << 10;
  for (const Shape& shape : {Shape{2, 2}, Shape{2, 4}, Shape{4, 2}}) {
    const Levels levels{shape.ranks, LevelsBy::kCount};
    const double others = shape.domains - 1, outside = shape.size() - shape.ranks;
    EXPECT_DOUBLE_EQ(read_across(shape, kFlat, Collective::kAllReduce, kBytes), 2 * outside);
    EXPECT_DOUBLE_EQ(read_across(shape, levels, Collective::kAllReduce, kBytes),
                     shape.domains * others);
    // The root reads the parts of the others of its domain alone.
    EXPECT_DOUBLE_EQ(read_across(shape, kFlat, Collective::kReduce, kBytes),
                     outside + outside / shape.size());
    EXPECT_DOUBLE_EQ(read_across(shape, levels, Collective::kReduce, kBytes), others);
  }
}

// ---- Waits and failures ---------------------------------------------------------------------

// Rank 3 of 2 x 2 begins first, and does not go on until the others wait: its domain for its part,
// its counterpart, rank 1, for its partial, and rank 0 for rank 1.
void wait_and_raise(AccessPath access) {
  std::atomic<int> begun{0}, waiting{0}, ended{0};
  const auto body = [&](TestRank& rank) {
    const auto reduction = compute::Reduction::make(DataType::kInt32, ops::sum, rank.size);
    std::vector<int> in(200'000, rank.self), out(in.size());
    Call call;
    call.collective = Collective::kAllReduce;
    call.in = in.data();
    call.out = out.data();
    call.count = in.size();
    call.type = DataType::kInt32;
    while (rank.self != 3 && begun.load() == 0) std::this_thread::yield();
    Operation& operation = rank.start(call, &*reduction);
    rank.check(!operation.advance(), "finished alone");
    if (rank.self == 3) {
      ++begun;
      while (waiting.load() < 3) std::this_thread::yield();
      rank.group->raise(ErrorCode::kAborted, 3);
      rank.group->await_readers();
      in = {};  // nobody reads it any more
      ++ended;
      while (ended.load() < rank.size) std::this_thread::yield();
      operation.fail(Status(ErrorCode::kAborted, "over", 3));
      return;
    }
    const std::vector<Rank> expected{rank.self == 0 ? 1 : 3};
    std::vector<Rank> awaited;
    while (awaited != expected) {
      rank.check(!operation.advance(), "finished without rank 3");
      awaited.clear();
      operation.waiting_for(&awaited);
      std::this_thread::yield();
    }
    ++waiting;
    const Status status = rank.finish(operation);
    rank.check(status.code() == ErrorCode::kAborted && status.rank() == 3, status.message());
    ++ended;
    while (ended.load() < rank.size) std::this_thread::yield();
  };
  EXPECT_THAT(run_threads(4, options_of({2, 2}, access), body), IsEmpty());
}

TEST(NativeInLevels, WhoDoesNotGoOnIsWaitedForAndARaiseEndsAllCalls) {
  for (const AccessPath access : {AccessPath::kWindow, AccessPath::kMapped}) wait_and_raise(access);
}

// Rank 3 does not come at all.
TEST(NativeInLevels, WhoDoesNotComeIsNamedByAll) {
  for (const AccessPath access : {AccessPath::kWindow, AccessPath::kMapped}) {
    std::atomic<int> named{0};
    const auto body = [&](TestRank& rank) {
      bool has_named = false;
      if (rank.self == 3) {
        while (named.load() < 3) std::this_thread::yield();
      } else {
        rank.on_stall = [&](Operation& operation) {
          std::vector<Rank> missing;
          operation.waiting_for(&missing);
          if (has_named || missing != std::vector<Rank>{3}) return;
          has_named = true;
          ++named;
        };
      }
      run_and_check(rank, {Collective::kAllReduce, 100'000});
    };
    EXPECT_THAT(run_threads(4, options_of({2, 2}, access), body), IsEmpty());
  }
}

}  // namespace
}  // namespace unisono::test
