// Arguments that make no sense: an error of the call alone. The communicator stays usable, even
// where only one rank made the bad call.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"

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

std::vector<BadCall> bad_calls() {
  const Call reduce{.collective = Collective::kAllReduce,
                    .in = memory,
                    .out = memory + 2048,
                    .count = 100,
                    .type = DataType::kFloat32,
                    .op = sum};
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
      {"bits of floats", with([](Call& c) { c.op = bit_and; })},
      {"minimum of complex numbers", with([](Call& c) {
         c.type = DataType::kComplex64;
         c.op = min;
       })},
      {"average of bool", with([](Call& c) {
         c.type = DataType::kBool;
         c.op = average;
       })},
      {"average in a scan", with([](Call& c) {
         c.collective = Collective::kScan;
         c.op = average;
       })},
      {"user operator without a function",
       with([](Call& c) { c.op = user_op("nothing", nullptr); })},
      {"count beyond the address space",
       with([](Call& c) { c.count = std::numeric_limits<std::size_t>::max() / 2; })},
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
        .root = 5}},
      {"send to anybody",
       {.collective = Collective::kSend,
        .in = memory,
        .count = 1,
        .type = DataType::kInt8,
        .root = kAnyRank}},
      {"receive into nothing",
       {.collective = Collective::kReceive, .count = 1, .type = DataType::kInt8, .root = 0}},
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
      {"in place all_to_all_v",
       {.collective = Collective::kAllToAllV,
        .in = memory,
        .out = memory,
        .type = DataType::kFloat32,
        .in_counts = two_counts,
        .out_counts = two_counts}},
  };
}

class BadInput : public testing::TestWithParam<const char*> {};

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
      comm.all_reduce(data, sum);
      ASSERT_EQ(data, (std::vector<int>{2, 4})) << "after " << bad.name;
    }
  });
}

TEST_P(BadInput, TypedCallsCheckTheRoom) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const std::vector<int> in(4);
    std::vector<int> out(3);
    EXPECT_EQ(outcome_of([&] { comm.all_reduce(in, out, sum); }).code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome_of([&] { comm.all_gather(in, out); }).code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome_of([&] { comm.reduce_scatter(in, out, sum); }).code,
              ErrorCode::kInvalidArgument);
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
                   .root = 9};
    const Call calls[]{{.collective = Collective::kSend,
                        .in = &value,
                        .count = 1,
                        .type = DataType::kInt32,
                        .root = peer},
                       {.collective = Collective::kReceive,
                        .out = &other,
                        .count = 1,
                        .type = DataType::kInt32,
                        .root = peer}};
    EXPECT_EQ(outcome_of([&] { comm.group({&bad, 1}); }).code, ErrorCode::kInvalidArgument);
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

INSTANTIATE_TEST_SUITE_P(Transports, BadInput, testing::Values("auto", "loopback", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace unisono::test
