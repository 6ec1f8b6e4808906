// Arguments that make no sense: an error of the call alone. The communicator stays usable, even
// where only one rank made the bad call.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

struct BadCall {
  const char* name;
  Call call;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

float memory[4096];
const std::size_t three_counts[]{1, 2, 3};
const std::size_t two_counts[]{1, 2};
const std::size_t endless_counts[]{std::numeric_limits<std::size_t>::max(), 2};
const std::size_t two_counts_of_two[]{2, 2};
const std::size_t overlapping[]{3, 2};
const std::size_t far_displacements[]{0, std::numeric_limits<std::size_t>::max() / 16};

std::vector<BadCall> bad_calls() {
  const Call reduce{.collective = Collective::kAllReduce,
                    .in = memory,
                    .out = memory + 2048,
                    .count = 100,
                    .type = DataType::kFloat32,
                    .op = ops::sum};
  const auto with = [&](auto change) {
    Call call = reduce;
    change(call);
    return call;
  };
  const auto cast = [](int value) { return static_cast<Collective>(value); };
  return {
      {"null in", with([](Call& c) { c.in = nullptr; })},
      {"null out", with([](Call& c) { c.out = nullptr; })},
      {"overlap", with([](Call& c) { c.out = memory + 50; })},
      {"overlap by one byte",
       with([](Call& c) { c.out = reinterpret_cast<std::byte*>(memory + 100) - 1; })},
      {"unknown type", with([](Call& c) { c.type = static_cast<DataType>(99); })},
      {"unknown operator", with([](Call& c) { c.op.kind = static_cast<OpKind>(99); })},
      {"unknown collective", with([&](Call& c) { c.collective = cast(77); })},
      {"unknown algorithm", with([](Call& c) { c.options.algorithm = "quicksort"; })},
      {"algorithm of another collective", with([](Call& c) { c.options.algorithm = "pairwise"; })},
      {"canonical by ring", with([](Call& c) {
         c.options.algorithm = "ring";
         c.options.order = Order::kCanonical;
       }),
       ErrorCode::kUnsupported},
      {"bits of floats", with([](Call& c) { c.op = ops::bit_and; })},
      {"minimum of complex numbers", with([](Call& c) {
         c.type = DataType::kComplex64;
         c.op = ops::min;
       })},
      {"average of bool", with([](Call& c) {
         c.type = DataType::kBool;
         c.op = ops::average;
       })},
      {"average in a scan", with([](Call& c) {
         c.collective = Collective::kScan;
         c.op = ops::average;
       })},
      {"user operator without a function",
       with([](Call& c) { c.op = ops::user_op("nothing", nullptr); })},
      {"count beyond the address space",
       with([](Call& c) { c.count = std::numeric_limits<std::size_t>::max() / 2; })},
      {"as many bytes as a number can name", with([](Call& c) {
         c.type = DataType::kInt8;
         c.count = std::numeric_limits<std::size_t>::max();
       })},
      {"more bytes than a buffer can have", with([](Call& c) {
         c.type = DataType::kInt8;
         c.count = (std::size_t{1} << 47) + 1;
       })},
      {"a message of all bytes", with([](Call& c) {
         c.collective = Collective::kSend;
         c.type = DataType::kInt8;
         c.count = std::numeric_limits<std::size_t>::max();
       })},
      {"room for all bytes", with([](Call& c) {
         c.collective = Collective::kReceive;
         c.type = DataType::kInt8;
         c.count = std::numeric_limits<std::size_t>::max();
       })},
      {"a displacement beyond the address space", with([](Call& c) {
         c.collective = Collective::kAllGatherV;
         c.out_counts = two_counts;
         c.out_displacements = far_displacements;
       })},
      {"blocks beyond the address space", with([](Call& c) {
         c.collective = Collective::kAllGather;
         c.count = std::numeric_limits<std::size_t>::max() / 4;
       })},
      {"negative root", with([](Call& c) {
         c.collective = Collective::kReduce;
         c.root = -1;
       })},
      {"root too large", with([](Call& c) {
         c.collective = Collective::kBroadcast;
         c.root = 2;
       })},
      {"send to nobody",
       {.collective = Collective::kSend,
        .in = memory,
        .count = 1,
        .type = DataType::kInt8,
        .peer = 5}},
      {"send to anybody",
       {.collective = Collective::kSend,
        .in = memory,
        .count = 1,
        .type = DataType::kInt8,
        .peer = kAnyRank}},
      {"receive into nothing",
       {.collective = Collective::kReceive, .count = 1, .type = DataType::kInt8, .peer = 0}},
      {"too many counts", with([](Call& c) {
         c.collective = Collective::kAllGatherV;
         c.out_counts = three_counts;
       })},
      {"no counts", with([](Call& c) { c.collective = Collective::kReduceScatterV; })},
      {"too many displacements", with([](Call& c) {
         c.collective = Collective::kAllGatherV;
         c.out_counts = two_counts;
         c.out_displacements = three_counts;
       })},
      {"counts that overflow", with([](Call& c) {
         c.collective = Collective::kAllGatherV;
         c.out_counts = endless_counts;
       })},
      {"overlapping blocks of all_gather_v", with([](Call& c) {
         c.collective = Collective::kAllGatherV;
         c.out_counts = two_counts_of_two;
         c.out_displacements = overlapping;
       })},
      {"overlapping blocks of gather_v", with([](Call& c) {
         c.collective = Collective::kGatherV;
         c.count = 2;
         c.out_counts = two_counts_of_two;
         c.out_displacements = overlapping;
       })},
      {"overlapping blocks of all_to_all_v", with([](Call& c) {
         c.collective = Collective::kAllToAllV;
         c.in_counts = two_counts_of_two;
         c.out_counts = two_counts_of_two;
         c.out_displacements = overlapping;
       })},
      {"a rank that takes more from itself than it gives itself", with([](Call& c) {
         c.collective = Collective::kAllToAllV;
         c.in_counts = two_counts;
         c.out_counts = two_counts_of_two;
       })},
      {"in place all_to_all_v",
       {.collective = Collective::kAllToAllV,
        .in = memory,
        .out = memory,
        .type = DataType::kFloat32,
        .in_counts = two_counts,
        .out_counts = two_counts}},
  };
}

class BadInput : public testing::TestWithParam<std::string> {};

TEST_P(BadInput, IsAnErrorOfTheCallAlone) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    for (const BadCall& bad : bad_calls()) {
      // Only one rank makes it, blocking and not.
      if (comm.rank() == 0) {
        const Outcome blocking = outcome_of([&] { comm.run(bad.call); });
        EXPECT_EQ(blocking.code, bad.code) << bad.name << ": " << blocking.message;
        const Outcome started = outcome_of([&] { comm.start(bad.call).wait(); });
        EXPECT_EQ(started.code, bad.code) << bad.name << ": " << started.message;
        EXPECT_GT(std::string(blocking.message).size(), 20u) << bad.name;
        EXPECT_TRUE(comm.status().ok()) << bad.name;
      }
      std::vector<int> data{1, 2};
      comm.all_reduce(data, ops::sum);
      ASSERT_EQ(data, (std::vector<int>{2, 4})) << "after " << bad.name;
    }
  });
}

// Every form that knows the sizes of its buffers, with one that is an element too small.
TEST_P(BadInput, TypedCallsCheckTheRoom) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const std::vector<int> in(4), blocks(7);
    // The last one is what would be written beyond the room.
    std::vector<int> memory(8, -1);
    const std::span<int> small(memory.data(), 3), gathered(memory.data(), 7);
    std::vector<int> out(4);
    const struct {
      const char* name;
      std::function<void()> call;
    } forms[]{
        {"all_reduce", [&] { comm.all_reduce(in, small, ops::sum); }},
        {"all_reduce_async", [&] { comm.all_reduce_async(in, small, ops::sum).wait(); }},
        {"reduce", [&] { comm.reduce(in, small, ops::sum, 0); }},
        {"all_gather", [&] { comm.all_gather(in, gathered); }},
        {"reduce_scatter", [&] { comm.reduce_scatter(blocks, out, ops::sum); }},
    };
    for (const auto& form : forms) {
      const Outcome outcome = outcome_of(comm.rank() == 0 ? form.call : [] {});
      EXPECT_EQ(outcome.written, comm.rank() == 0) << form.name;
      EXPECT_EQ(outcome.code, comm.rank() == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kOk)
          << form.name;
      EXPECT_EQ(memory, std::vector<int>(8, -1)) << form.name;
      comm.barrier();
    }
  });
}

TEST_P(BadInput, OnlyTheRootOfAReduceNeedsRoom) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const std::vector<int> in(4, 1);
    std::vector<int> out(comm.rank() == 1 ? 6 : 0);
    comm.reduce(in, out, ops::sum, 1);
    EXPECT_EQ(out, comm.rank() == 1 ? (std::vector<int>{2, 2, 2, 2, 0, 0}) : std::vector<int>());
  });
}

// Gaps, any order and empty blocks anywhere are fine where the blocks are apart; inputs may
// overlap.
TEST_P(BadInput, BlocksThatAreApartMayLieInAnyOrder) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    const std::vector<int> mine(4, comm.rank() + 1);
    std::vector<int> out(9, 0);
    const std::size_t counts[]{2, 0, 3}, places[]{6, 7, 1};
    comm.all_gather_v(mine.data(), out.data(), counts, places, DataType::kInt32);
    EXPECT_EQ(out, (std::vector<int>{0, 3, 3, 3, 0, 0, 1, 1, 0}));

    const std::size_t twos[]{2, 2, 2}, overlapping_inputs[]{1, 0, 1};
    std::vector<int> got(2, 0);
    const std::vector<int> source{1, 2, 3};
    comm.scatter_v(source.data(), twos, overlapping_inputs, got.data(), 2, DataType::kInt32, 0);
    EXPECT_EQ(got, comm.rank() == 1 ? (std::vector<int>{1, 2}) : (std::vector<int>{2, 3}));
  });
}

TEST_P(BadInput, OverlappingBlocksAreNamed) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    std::vector<int> mine(4), out(20);
    const std::size_t counts[]{2, 4, 0, 3}, places[]{9, 0, 1, 3};
    const Outcome outcome = outcome_of(
        [&] { comm.all_gather_v(mine.data(), out.data(), counts, places, DataType::kInt32); });
    EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string_view(outcome.message).find("rank 1"), std::string_view::npos)
        << outcome.message;
    EXPECT_NE(std::string_view(outcome.message).find("rank 3"), std::string_view::npos)
        << outcome.message;
    comm.barrier();
  });
}

TEST_P(BadInput, MemoryThatCannotBeIsRefusedByItsSize) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    for (const std::size_t bytes : {kMost, kMost - 62, kMost / 2, (std::size_t{1} << 47) + 1}) {
      const Outcome outcome = outcome_of([&] { allocate(comm, bytes); });
      EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument) << bytes;
      EXPECT_NE(std::string_view(outcome.message).find(std::to_string(bytes)),
                std::string_view::npos)
          << outcome.message;
    }
    for (const std::size_t count : {kMost / 8 + 2, kMost / 8 + 1, kMost}) {
      const Outcome outcome = outcome_of([&] { SharedBuffer<double>(comm, count); });
      EXPECT_EQ(outcome.code, ErrorCode::kInvalidArgument) << count;
      EXPECT_NE(std::string_view(outcome.message).find(std::to_string(count)),
                std::string_view::npos)
          << outcome.message;
    }
    comm.barrier();
  });
}

TEST_P(BadInput, AGroupWithABadCallIsRefusedAndTheNextOneRuns) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    int value = comm.rank();
    int other = -1;
    const Rank peer = 1 - comm.rank();
    const Call bad{.collective = Collective::kSend,
                   .in = &value,
                   .count = 1,
                   .type = DataType::kInt32,
                   .peer = 9};
    const Call calls[]{{.collective = Collective::kSend,
                        .in = &value,
                        .count = 1,
                        .type = DataType::kInt32,
                        .peer = peer},
                       {.collective = Collective::kReceive,
                        .out = &other,
                        .count = 1,
                        .type = DataType::kInt32,
                        .peer = peer}};
    const Outcome refused = outcome_of([&] { comm.group({&bad, 1}); });
    EXPECT_EQ(refused.code, ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string_view(refused.message).find("send: "), std::string_view::npos)
        << refused.message;
    comm.group(calls);
    EXPECT_EQ(other, peer);
  });
}

TEST_P(BadInput, ReleasingForeignMemoryIsRefused) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    int mine = 0;
    EXPECT_EQ(outcome_of([&] { release(comm, &mine); }).code, ErrorCode::kInvalidArgument);
    void* const given = allocate(comm, 1000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(given) % 64, 0u);
    release(comm, given);
    EXPECT_EQ(outcome_of([&] { release(comm, given); }).code, ErrorCode::kInvalidArgument);
    release(comm, nullptr);
    comm.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, BadInput, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace unisono::test
