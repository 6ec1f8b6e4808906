// Ranks that make different calls: an error on every rank that names two ranks and both calls.
#include <gmock/gmock.h>

#include <atomic>

#include "comm/part.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

void user_function(const void*, void*, std::size_t, DataType, void*) {}

struct Disagreement {
  const char* name;
  Call common;
  Call odd;             ///< what rank 1 calls
  const char* said[2];  ///< parts of the message: both calls
};

// Buffers large enough for every call below.
struct Room {
  std::vector<double> in = std::vector<double>(600'000, 1.0);
  std::vector<double> out = std::vector<double>(600'000);
};

std::vector<Disagreement> disagreements() {
  const Call base{.collective = Collective::kAllReduce,
                  .count = 10,
                  .type = DataType::kFloat32,
                  .op = ops::sum};
  const auto with = [](Call call, auto change) {
    change(call);
    return call;
  };
  const Call rooted = with(base, [](Call& c) { c.collective = Collective::kReduce; });
  const Call large = with(base, [](Call& c) { c.count = 100'000; });
  return {
      {"count", base, with(base, [](Call& c) { c.count = 11; }), {"count 10,", "count 11,"}},
      {"large_count",
       large,
       with(large, [](Call& c) { c.count = 100'001; }),
       {"count 100000,", "count 100001,"}},
      {"small_and_large", base, large, {"count 10,", "count 100000,"}},
      {"type", base, with(base, [](Call& c) { c.type = DataType::kInt32; }), {"float32", "int32"}},
      {"operator", base, with(base, [](Call& c) { c.op = ops::max; }), {"sum", "max"}},
      {"root", rooted, with(rooted, [](Call& c) { c.root = 2; }), {"root 0", "root 2"}},
      {"collective",
       base,
       with(base, [](Call& c) { c.collective = Collective::kAllGather; }),
       {"all_reduce(", "all_gather("}},
      {"barrier", base, {.collective = Collective::kBarrier}, {"all_reduce(", "barrier("}},
      {"large_collective",
       large,
       with(large, [](Call& c) { c.collective = Collective::kBroadcast; }),
       {"all_reduce(", "broadcast("}},
      {"user_operator",
       with(base, [](Call& c) { c.op = ops::user_op("one", &user_function); }),
       with(base, [](Call& c) { c.op = ops::user_op("two", &user_function); }),
       {"user", "user"}},
  };
}

class Mismatch : public testing::TestWithParam<std::string> {};

TEST_P(Mismatch, IsAnErrorOnEveryRankThatPrintsBothCalls) {
  for (const Disagreement& each : disagreements()) {
    SCOPED_TRACE(each.name);
    run_ranks(3, GetParam(), [&](Communicator& comm) {
      SCOPED_TRACE(std::string(each.name) + " on rank " + std::to_string(comm.rank()));
      Room room;
      Call call = comm.rank() == 1 ? each.odd : each.common;
      call.in = room.in.data();
      call.out = room.out.data();
      if (call.collective == Collective::kBroadcast) call.in = call.out;
      comm.barrier();
      // A rank whose call was already complete fails its next one.
      const Outcome outcome = outcome_of([&] {
        comm.run(call);
        for (;;) comm.barrier();
      });
      ASSERT_TRUE(outcome.written);
      EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
      EXPECT_THAT(std::string(outcome.message), HasSubstr("rank 1"));
      EXPECT_THAT(std::string(outcome.message), HasSubstr(each.said[0]));
      EXPECT_THAT(std::string(outcome.message), HasSubstr(each.said[1]));
      EXPECT_EQ(outcome_of([&] { comm.barrier(); }).code, ErrorCode::kMismatch);
    });
  }
}

TEST_P(Mismatch, OfAnAlgorithmHintIsAnErrorOnEveryRank) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<float> data(100, 1.0f);
    const CallOptions options{.algorithm = comm.rank() == 2 ? "recursive_doubling" : "ring"};
    const Outcome outcome = outcome_of([&] {
      comm.all_reduce(data, ops::sum, options);
      for (;;) comm.barrier();
    });
    EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
  });
}

// One rank takes a plan where the others meet in shared memory, or the other way round.
TEST_P(Mismatch, OfAHintOnOneRankOnlyIsAnErrorOnEveryRank) {
  for (const Rank odd : {0, 2}) {
    run_ranks(3, GetParam(), [odd](Communicator& comm) {
      std::vector<float> data(100, 1.0f);
      const CallOptions options{.algorithm = comm.rank() == odd ? "ring" : ""};
      const Outcome outcome = outcome_of([&] {
        comm.all_reduce(data, ops::sum, options);
        for (;;) comm.barrier();
      });
      EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
    });
  }
}

TEST_P(Mismatch, OfTheOrderIsAnErrorOnEveryRank) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<float> data(100, 1.0f);
    const CallOptions options{.order = comm.rank() == 1 ? Order::kCanonical : Order::kAny};
    const Outcome outcome = outcome_of([&] {
      comm.all_reduce(data, ops::sum, options);
      for (;;) comm.barrier();
    });
    EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
    EXPECT_THAT(outcome.message, HasSubstr("canonical"));
  });
}

// What ranks tell each other in it looks like calls of the program's.
TEST_P(Mismatch, OfASplitIsAnErrorOnEveryRank) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const Outcome outcome = outcome_of([&] {
      if (comm.rank() == 0) {
        static_cast<void>(comm.split(0));
      } else {
        for (const std::size_t bytes : {sizeof(detail::Vote), sizeof(detail::Offer), 1ul}) {
          std::vector<std::uint8_t> mine(bytes), all(2 * bytes);
          comm.all_gather(mine, all);
        }
      }
      comm.barrier();
    });
    EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
  });
}

TEST_P(Mismatch, OfOneCommunicatorLeavesOthersAlone) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<float> data(100'000, 1.0f);
    const std::size_t count = comm.rank() == 0 ? 100'000 : 50'000;
    const Outcome outcome = outcome_of([&] {
      other.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ops::sum);
      for (;;) other.barrier();
    });
    EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
    std::vector<int> healthy(70'000, 1);
    comm.all_reduce(healthy, ops::sum);
    EXPECT_EQ(healthy, std::vector<int>(70'000, 2));
  });
}

TEST_P(Mismatch, OfAPairsCountsIsAnErrorOnEveryRank) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<int> in(3000);
    std::vector<int> out(3000);
    std::vector<std::size_t> sends(3, 100);
    std::vector<std::size_t> receives(3, 100);
    if (comm.rank() == 0) sends[1] = 200;  // rank 1 expects 100
    const Outcome outcome = outcome_of([&] {
      comm.all_to_all_v(in.data(), sends, {}, out.data(), receives, {}, DataType::kInt32);
      for (;;) comm.barrier();
    });
    ASSERT_TRUE(outcome.written);
    EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Mismatch, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
