// Pairs of calls that differ in one argument: one rank makes the odd one. Every rank hears of it in
// that call or in the next, by the same code on every transport, and the rank that is named is the
// odd one where the others are a majority. Each transport and number of ranks meets a cover of
// (collective, argument) x size; TEST_FULL=1: the whole product.
#include <gmock/gmock.h>

#include <array>
#include <tuple>

#include "backend/call_check.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

constexpr std::size_t kSizes[]{1, 2000, 3'000'000};  // elements of a whole buffer

enum class Argument : std::uint8_t {
  kCollective,
  kRoot,
  kCount,
  kType,
  kOperator,
  kOrder,
  kCounts
};
constexpr const char* kArgumentNames[]{"collective", "root",  "count", "type",
                                       "operator",   "order", "counts"};

// Nothing but the pairs concerned can tell: no rank is the odd one.
bool is_between_pairs(Collective collective, Argument argument) {
  return argument == Argument::kCounts && !facts_of(collective).all_give_counts();
}

bool applies(Collective collective, Argument argument) {
  const CollectiveFacts& facts = facts_of(collective);
  switch (argument) {
    case Argument::kCollective:
      return true;
    case Argument::kRoot:
      return is_rooted(collective);
    case Argument::kCount:
      return !facts.is_uneven && facts.has_buffers();
    case Argument::kType:
      return facts.has_buffers();
    case Argument::kOperator:
    case Argument::kOrder:
      return reduces(collective);
    case Argument::kCounts:
      return facts.is_uneven;
  }
  return false;
}

// One rank's buffers and counts for any of the calls.
struct Room {
  explicit Room(int ranks)
      : in(kSizes[2] + 64),
        out(kSizes[2] + 64),
        in_counts(static_cast<std::size_t>(ranks)),
        out_counts(in_counts) {}

  std::vector<std::int32_t> in, out;
  std::vector<std::size_t> in_counts, out_counts;
};

// The same on all ranks but for what is a rank's own.
Call call_of(Collective collective, std::size_t elements, int ranks, Rank rank, Room* room) {
  const std::size_t block = std::max<std::size_t>(1, elements / static_cast<std::size_t>(ranks));
  const CollectiveFacts& facts = facts_of(collective);
  room->in_counts.assign(room->in_counts.size(), block);
  room->out_counts = room->in_counts;
  Call call{.collective = collective,
            .in = room->in.data(),
            .out = room->out.data(),
            .count = facts.has_blocks() ? block : elements,
            .type = DataType::kInt32,
            .op = ops::sum};
  const bool is_root = rank == call.root;
  const auto has_counts = [&](const BufferFacts& buffer) {
    return facts.is_uneven && buffer.holds == Holds::kBlocks && (is_root || !buffer.at_root_alone);
  };
  if (has_counts(facts.input)) call.in_counts = room->in_counts;
  if (has_counts(facts.output)) call.out_counts = room->out_counts;
  if (facts.in_place == InPlace::kAlways) call.in = call.out;
  return call;
}

// The odd rank's form of `call`; it is not rank 0.
Call odd_form(Call call, Argument argument, Rank rank, Room* room) {
  switch (argument) {
    case Argument::kCollective:
      call.collective =
          call.collective == Collective::kBroadcast ? Collective::kReduce : Collective::kBroadcast;
      call.in = call.out;
      return call;
    case Argument::kRoot:
      call.root = rank;
      if (call.collective == Collective::kGatherV) call.out_counts = room->out_counts;
      if (call.collective == Collective::kScatterV) call.in_counts = room->in_counts;
      return call;
    case Argument::kCount:
      ++call.count;
      return call;
    case Argument::kType:
      call.type = DataType::kFloat32;
      return call;
    case Argument::kOperator:
      call.op = ops::max;
      return call;
    case Argument::kOrder:
      call.options.order = Order::kCanonical;
      return call;
    case Argument::kCounts:
      ++call.count;  // gather_v and scatter_v: of this rank alone
      ++room->in_counts.front();
      ++room->out_counts.front();
      return call;
  }
  return call;
}

Rank odd_rank(int ranks) { return ranks - 1; }

struct Pair {
  Collective collective;
  Argument argument;
};

std::vector<Pair> pairs() {
  std::vector<Pair> all;
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (is_point_to_point(collective)) continue;
    for (int a = 0; a <= static_cast<int>(Argument::kCounts); ++a) {
      const auto argument = static_cast<Argument>(a);
      if (applies(collective, argument)) all.push_back({collective, argument});
    }
  }
  return all;
}

using Job = std::tuple<std::string, int>;
class DifferingCalls : public testing::TestWithParam<Job> {};

void expect_disagreement(const Outcome& outcome, const Pair& pair, Communicator& comm) {
  ASSERT_TRUE(outcome.written) << "no error by the end of the next collective";
  EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
  if (comm.size() > 2 && !is_between_pairs(pair.collective, pair.argument)) {
    // Ranks that are slowed down too much to answer in time could be of either opinion.
    if (is_sanitized() && outcome.rank < 0) return;
    EXPECT_EQ(outcome.rank, odd_rank(comm.size())) << outcome.message;
  } else {
    EXPECT_GE(outcome.rank, 0) << outcome.message;
  }
}

// A communicator of its own for each pair: the failure is its end.
void make_pair_of_calls(Communicator& world, const Pair& pair, std::size_t elements, Room* room) {
  SCOPED_TRACE(std::string(name_of(pair.collective)) + ", another " +
               kArgumentNames[static_cast<int>(pair.argument)] + ", " + std::to_string(elements) +
               " elements, on rank " + std::to_string(world.rank()));
  Communicator comm = world.duplicate();
  Call call = call_of(pair.collective, elements, comm.size(), comm.rank(), room);
  if (comm.rank() == odd_rank(comm.size())) {
    call = odd_form(call, pair.argument, comm.rank(), room);
  }
  const Outcome outcome = outcome_of([&] {
    comm.run(call);
    comm.barrier();
  });
  expect_disagreement(outcome, pair, comm);
  world.barrier();  // nobody leaves while others ask for its calls
}

TEST_P(DifferingCalls, AreAnErrorOnEveryRankByTheNextCollective) {
  const auto& [transport, ranks] = GetParam();
  run_ranks(ranks, transport, [](Communicator& world) {
    Room room(world.size());
    std::size_t number = static_cast<std::size_t>(world.size());
    for (const Pair& pair : pairs()) {
      ++number;
      for (std::size_t size = 0; size < std::size(kSizes); ++size) {
        if (!is_full_run() && number % std::size(kSizes) != size) continue;
        if (pair.collective == Collective::kBarrier && size > 0) continue;
        make_pair_of_calls(world, pair, kSizes[size], &room);
      }
    }
  });
}

std::string name_of_job(const testing::TestParamInfo<Job>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Jobs, DifferingCalls,
                         testing::Combine(testing::ValuesIn(tested_transports()),
                                          testing::Values(2, 3, 5)),
                         name_of_job);

// Ranks that only send, each to another root, would never read what tells them so.
class OnlySending : public testing::TestWithParam<std::string> {};

TEST_P(OnlySending, RanksHearOfTheDifferenceByTheNextCollective) {
  for (const Collective collective : {Collective::kGather, Collective::kReduce}) {
    for (const std::size_t count : {1, 3000}) {
      run_ranks(2, GetParam(), [&](Communicator& comm) {
        std::vector<std::int32_t> in(count), out(2 * count);
        const Call call{.collective = collective,
                        .in = in.data(),
                        .out = out.data(),
                        .count = count,
                        .type = DataType::kInt32,
                        .op = ops::sum,
                        .root = 1 - comm.rank()};
        const Outcome outcome = outcome_of([&] {
          comm.run(call);
          comm.barrier();
        });
        ASSERT_TRUE(outcome.written);
        EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
        EXPECT_THAT(outcome.message, testing::HasSubstr("root 1"));
        EXPECT_THAT(outcome.message, testing::HasSubstr("root 0"));
      });
    }
  }
}

// As long as the ranks go on to disagree: no call of theirs ever reads.
TEST_P(OnlySending, ForEverIsAnErrorAsWell) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const std::int32_t in = 1;
    std::int32_t out[2];
    const Outcome outcome = outcome_of([&] {
      for (;;) comm.gather(&in, out, 1, DataType::kInt32, 1 - comm.rank());
    });
    EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, OnlySending, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

class CountsOfAPair : public testing::TestWithParam<std::string> {};

// The bounds up to which messages go unasked, in elements: what is sent is just above, what is
// expected is not, so that neither waits for what the other one does.
TEST_P(CountsOfAPair, ThatDifferAcrossTheEagerBoundAreAnError) {
  for (const Collective collective :
       {Collective::kGatherV, Collective::kScatterV, Collective::kAllToAllV}) {
    for (const std::size_t expected : {4096, 8192}) {
      run_ranks(2, GetParam(), [&](Communicator& comm) {
        Room room(2);
        Call call = call_of(collective, 2 * expected, 2, comm.rank(), &room);
        if (collective == Collective::kGatherV && comm.rank() == 1) ++call.count;
        if (collective != Collective::kGatherV && comm.rank() == 0) ++room.in_counts[1];
        const Outcome outcome = outcome_of([&] {
          comm.run(call);
          comm.barrier();
        });
        ASSERT_TRUE(outcome.written) << name_of(collective) << " of " << expected;
        EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
        EXPECT_THAT(outcome.message, testing::HasSubstr(std::to_string(4 * (expected + 1))));
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, CountsOfAPair, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

// Where memory is shared, the next collective may be any: it need not be one that all wait in.
TEST(DifferingCallsInSharedMemory, AreAnErrorWhateverIsCalledNext) {
  for (const std::size_t count : {1, 2000, 100'000}) {
    for (const Collective next : {Collective::kGather, Collective::kBroadcast, Collective::kScan}) {
      run_ranks(5, "auto", [&](Communicator& comm) {
        Room room(comm.size());
        Call call = call_of(Collective::kGather, count * 5, comm.size(), comm.rank(), &room);
        if (comm.rank() == 3) call.root = 1;
        const Outcome outcome = outcome_of([&] {
          comm.run(call);
          comm.run(call_of(next, count, comm.size(), comm.rank(), &room));
        });
        ASSERT_TRUE(outcome.written) << "rank " << comm.rank() << ", then " << name_of(next);
        EXPECT_EQ(outcome.code, ErrorCode::kMismatch) << outcome.message;
        if (is_sanitized() && outcome.rank < 0) return;  // as in expect_disagreement()
        EXPECT_EQ(outcome.rank, 3) << outcome.message;
      });
    }
  }
}

}  // namespace
}  // namespace unisono::test
