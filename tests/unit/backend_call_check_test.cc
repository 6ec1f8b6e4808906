// The check of calls by itself: what each wrong call is told, with its value and its limit, and
// what it finds out about right ones. No buffer is touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "backend/call_check.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

constexpr int kSize = 3;
constexpr Rank kSelf = 1;
constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();

std::byte memory[4096];
const std::size_t three[]{4, 2, 1};
const std::size_t two[]{4, 2};
const std::size_t huge_counts[]{0, kHuge / 8, 1};
const std::size_t apart[]{0, 10, 20};
const std::size_t overlapping[]{0, 3, 20};

Call call_of(Collective collective) {
  return {.collective = collective,
          .in = memory,
          .out = memory + 2048,
          .count = 4,
          .type = DataType::kFloat32,
          .op = ops::sum};
}

Call with(Call call, void (*change)(Call&)) {
  change(call);
  return call;
}

struct Wrong {
  Call call;
  std::string message;
};

void expect_each_told(const std::vector<Wrong>& calls) {
  for (const Wrong& wrong : calls) {
    CallShape shape;
    const Status status = check_call(wrong.call, kSelf, kSize, &shape);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument) << wrong.message;
    EXPECT_THAT(status.message(), HasSubstr(wrong.message));
  }
}

TEST(CallCheck, TellsOfValuesThatAreNone) {
  const Call reduce = call_of(Collective::kAllReduce);
  expect_each_told({
      {with(reduce, [](Call& c) { c.type = static_cast<DataType>(99); }), "unknown data type 99"},
      {with(reduce, [](Call& c) { c.op.kind = static_cast<OpKind>(98); }), "unknown operator 98"},
      {with(reduce, [](Call& c) { c.collective = static_cast<Collective>(77); }),
       "unknown collective 77"},
  });
}

TEST(CallCheck, TellsOfRanksThatAreNone) {
  const Call broadcast = call_of(Collective::kBroadcast), send = call_of(Collective::kSend);
  expect_each_told({
      {with(broadcast, [](Call& c) { c.root = 3; }), "root 3 is not a rank of 0..2"},
      {with(broadcast, [](Call& c) { c.root = -1; }), "root -1 is not a rank of 0..2"},
      {with(broadcast, [](Call& c) { c.root = kNoRank; }), "root -2 is not a rank of 0..2"},
      {with(send, [](Call& c) { c.peer = 3; }), "peer 3 is not a rank of 0..2"},
      {with(send, [](Call& c) { c.peer = kAnyRank; }), "peer -1 is not a rank of 0..2"},
      {send, "it names no peer (Call::peer)"},
      {call_of(Collective::kReceive), "it names no peer (Call::peer)"},
  });
}

TEST(CallCheck, TellsOfOperatorsWithoutMeaning) {
  const Call reduce = call_of(Collective::kAllReduce), scan = call_of(Collective::kScan);
  expect_each_told({
      {with(reduce, [](Call& c) { c.op = ops::bit_and; }),
       "operator bit_and has no meaning on float32"},
      {with(scan, [](Call& c) { c.op = ops::average; }), "operator average has no meaning on scan"},
      {with(scan, [](Call& c) { c.collective = Collective::kExscan, c.op = ops::average; }),
       "operator average has no meaning on exscan"},
      {with(reduce, [](Call& c) { c.op = ops::user_op("mine", nullptr); }),
       "a user operator needs a function and a name"},
  });
}

TEST(CallCheck, TellsOfBuffersThatCannotBe) {
  const Call reduce = call_of(Collective::kAllReduce), gather = call_of(Collective::kAllGather);
  const std::string limit = std::to_string(kBufferBytesMax) + " bytes that a buffer can have";
  expect_each_told({
      {with(reduce, [](Call& c) { c.in = nullptr; }), "in is null but 16 bytes are read from it"},
      {with(gather, [](Call& c) { c.out = nullptr; }),
       "out is null but 48 bytes are written to it"},
      {with(reduce, [](Call& c) { c.out = memory + 15; }), "in and out overlap"},
      {with(gather, [](Call& c) { c.in = memory + 2048; }), "in and out overlap"},
      {with(reduce, [](Call& c) { c.count = kHuge / 2; }),
       "count " + std::to_string(kHuge / 2) + " of elements of 4 bytes is more than the " + limit},
      {with(gather, [](Call& c) { c.count = kBufferBytesMax / 8; }),
       "count " + std::to_string(kBufferBytesMax / 8) +
           " of elements of 4 bytes for each of 3 blocks is more than the " + limit},
  });
}

TEST(CallCheck, TellsOfCountsThatDoNotFit) {
  const Call gather = with(call_of(Collective::kAllGatherV), [](Call& c) { c.out_counts = three; });
  const Call scatter =
      with(call_of(Collective::kReduceScatterV), [](Call& c) { c.in_counts = two; });
  const Call root = with(call_of(Collective::kGatherV), [](Call& c) {
    c.root = kSelf;
    c.out_counts = three;
  });
  expect_each_told({
      {with(gather, [](Call& c) { c.out_counts = two; }),
       "out has 2 counts; one for each of the 3 ranks is needed"},
      {scatter, "in has 2 counts; one for each of the 3 ranks is needed"},
      {with(gather, [](Call& c) { c.out_displacements = two; }),
       "out has 2 displacements; give 3 or none"},
      {with(gather, [](Call& c) { c.out_counts = huge_counts; }),
       "the block of rank 1 in out, " + std::to_string(kHuge / 8) +
           " elements of 4 bytes from element 0 on, ends beyond the " +
           std::to_string(kBufferBytesMax) + " bytes that a buffer can have"},
      {with(gather, [](Call& c) { c.out_displacements = overlapping; }),
       "the blocks of rank 0 (elements 0 to 3) and rank 1 (elements 3 to 4) in out overlap"},
      {root, "the root's own count is 4 but counts[1] is 2"},
      {with(call_of(Collective::kBroadcast), [](Call& c) { c.out = memory + 512; }),
       "the call has one buffer"},
  });
}

TEST(CallCheck, AsksOfARankOnlyWhatItHas) {
  CallShape shape;
  Call call = call_of(Collective::kGather);
  call.out = nullptr;
  EXPECT_TRUE(check_call(call, kSelf, kSize, &shape)) << "the root alone has an output";
  EXPECT_EQ(shape.output_bytes, 0u);
  call.root = kSelf;
  EXPECT_FALSE(check_call(call, kSelf, kSize, &shape));
  call = with(call_of(Collective::kReceive), [](Call& c) { c.peer = kAnyRank, c.in = nullptr; });
  EXPECT_TRUE(check_call(call, kSelf, kSize, &shape)) << "a receive may be from any rank";
}

TEST(CallCheck, FindsExtentsAndTheBytesThatAllAgreeOn) {
  struct Right {
    Call call;
    std::size_t input, output, agreed;
  };
  const Call gather = with(call_of(Collective::kAllGatherV), [](Call& c) { c.out_counts = three; });
  const std::vector<Right> calls{
      {call_of(Collective::kAllReduce), 16, 16, 16},
      {call_of(Collective::kReduce), 16, 0, 16},
      {call_of(Collective::kAllGather), 16, 48, 48},
      {call_of(Collective::kAllToAll), 48, 48, 48},
      {call_of(Collective::kScatter), 0, 16, 48},
      {gather, 8, 28, 28},
      {with(gather, [](Call& c) { c.out_displacements = apart; }), 8, 84, 28},
      {with(call_of(Collective::kGatherV), [](Call&) {}), 16, 0, 0},
      {call_of(Collective::kBarrier), 0, 0, 0},
  };
  for (const Right& right : calls) {
    SCOPED_TRACE(name_of(right.call.collective));
    CallShape shape;
    ASSERT_TRUE(check_call(right.call, kSelf, kSize, &shape));
    EXPECT_EQ(shape.input_bytes, right.input);
    EXPECT_EQ(shape.output_bytes, right.output);
    EXPECT_EQ(shape.agreed_bytes, right.agreed);
    EXPECT_FALSE(shape.in_place);
  }
}

TEST(CallCheck, KnowsCallsInPlace) {
  const auto is_in_place = [](Collective collective, std::size_t in_at, std::size_t out_at) {
    Call call = call_of(collective);
    call.in = memory + in_at;
    call.out = memory + out_at;
    CallShape shape;
    return bool(check_call(call, kSelf, kSize, &shape)) && shape.in_place;
  };
  EXPECT_TRUE(is_in_place(Collective::kAllReduce, 0, 0));
  EXPECT_FALSE(is_in_place(Collective::kAllReduce, 0, 16));
  EXPECT_TRUE(is_in_place(Collective::kAllGather, 16, 0)) << "block 1 of the output";
  EXPECT_TRUE(is_in_place(Collective::kReduceScatter, 0, 16)) << "block 1 of the input";
  EXPECT_TRUE(is_in_place(Collective::kAllToAll, 0, 0));
  EXPECT_TRUE(is_in_place(Collective::kBroadcast, 0, 0)) << "it has one buffer";
  EXPECT_FALSE(is_in_place(Collective::kReduce, 0, 0)) << "this rank has no output";
}

TEST(CallCheck, NeverTakesAnExchangeOfUnevenBlocksInPlace) {
  Call call = with(call_of(Collective::kAllToAllV), [](Call& c) {
    c.in_counts = c.out_counts = three;
    c.out = memory;
  });
  CallShape shape;
  EXPECT_THAT(check_call(call, kSelf, kSize, &shape).message(), HasSubstr("overlap"));
  call.out = memory + 2048;
  EXPECT_TRUE(check_call(call, kSelf, kSize, &shape));
}

TEST(FitBuffers, TakesTheCountFromTheLengths) {
  Call call = call_of(Collective::kReduceScatter);
  EXPECT_TRUE(fit_buffers(&call, 21, 7, kSelf, kSize));
  EXPECT_EQ(call.count, 7u);
  EXPECT_THAT(fit_buffers(&call, 20, 7, kSelf, kSize).message(),
              HasSubstr("in has 20 elements and 21 are needed"));
  call = call_of(Collective::kAllToAll);
  EXPECT_THAT(fit_buffers(&call, 20, 20, kSelf, kSize).message(),
              HasSubstr("in has 20 elements, which make no blocks of one length for 3 ranks"));
  call = call_of(Collective::kReceive);
  EXPECT_TRUE(fit_buffers(&call, 0, 5, kSelf, kSize));
  EXPECT_EQ(call.count, 5u);
  call = call_of(Collective::kAllGather);
  EXPECT_THAT(fit_buffers(&call, 5, 14, kSelf, kSize).message(),
              HasSubstr("out has 14 elements and 15 are needed"));
}

TEST(PlaceInBuffer, FindsThisRanksBlock) {
  Call call = call_of(Collective::kAllGather);
  call.out = memory;
  EXPECT_TRUE(place_in_buffer(&call, 12, kSelf, kSize));
  EXPECT_EQ(call.count, 4u);
  EXPECT_EQ(call.in, memory + 16);
  EXPECT_EQ(call.out, memory);
  EXPECT_THAT(place_in_buffer(&call, 13, kSelf, kSize).message(),
              HasSubstr("the buffer has 13 elements, which make no blocks of one length for 3"));
  call = with(call_of(Collective::kReduceScatterV), [](Call& c) {
    c.out = memory;
    c.in_counts = three;
  });
  EXPECT_TRUE(place_in_buffer(&call, 7, kSelf, kSize));
  EXPECT_EQ(call.in, memory);
  EXPECT_EQ(call.out, memory + 16);
}

TEST(PlaceInBuffer, KeepsBlocksApartThatAreWritten) {
  Call call = with(call_of(Collective::kScatterV), [](Call& c) {
    c.out = memory;
    c.root = kSelf;
    c.in_counts = three;
    c.in_displacements = overlapping;
  });
  EXPECT_TRUE(place_in_buffer(&call, 21, kSelf, kSize)) << "the root's blocks are only read";
  EXPECT_EQ(call.in, memory);
  EXPECT_EQ(call.out, memory + 12);
  call = with(call_of(Collective::kGatherV), [](Call& c) {
    c.out = memory;
    c.root = kSelf;
    c.out_counts = three;
    c.out_displacements = overlapping;
  });
  EXPECT_THAT(place_in_buffer(&call, 21, kSelf, kSize).message(),
              HasSubstr("in the buffer overlap"));
}

TEST(MakeRecord, HoldsWhatRanksMustAgreeOn) {
  const CallRecord reduce = make_record(call_of(Collective::kAllReduce), Order::kAny, 5, 2);
  EXPECT_EQ(reduce.count, 4u);
  EXPECT_EQ(reduce.root, -1);
  EXPECT_EQ(reduce.history, 5u);
  EXPECT_EQ(reduce.algorithm, 2);
  Call call = call_of(Collective::kAllReduce);
  call.options.order = Order::kCanonical;
  EXPECT_EQ(make_record(call, Order::kCanonical, 5, 2).op, reduce.op | kRecordCanonical);
  EXPECT_EQ(make_record(call, Order::kExact, 5, 2).op, reduce.op | kRecordExact);
  call = call_of(Collective::kGatherV);
  EXPECT_EQ(make_record(call, Order::kAny, 0, 0).count, 0u) << "each rank has its own";
}

TEST(MakeRecord, TellsCountsThatAddUpToTheSameApart) {
  static const std::size_t other[]{2, 4, 1};
  Call call = with(call_of(Collective::kAllGatherV), [](Call& c) { c.out_counts = three; });
  const CallRecord one = make_record(call, Order::kAny, 0, 0);
  call.out_counts = other;
  EXPECT_EQ(make_record(call, Order::kAny, 0, 0).count, one.count);
  EXPECT_NE(make_record(call, Order::kAny, 0, 0), one);
}

TEST(MessageRecord, IsTheRecordOfAMessage) {
  for (const Collective collective : {Collective::kSend, Collective::kReceive}) {
    Call call = call_of(collective);
    call.peer = 2;
    call.tag = 9;
    call.root = 1;
    call.options.order = Order::kCanonical;
    EXPECT_EQ(message_record(call), make_record(call, Order::kAny, 0, 0)) << name_of(collective);
  }
}

// What is taken without a check, the check would take.
TEST(IsPlainMessage, IsSaidOfNothingThatTheCheckRefuses) {
  int plain = 0;
  for (const Collective collective : {Collective::kSend, Collective::kReceive}) {
    for (const Rank peer : {kAnyRank, -2, 0, kSelf, kSize - 1, kSize}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{4}, kHuge / 32, kHuge}) {
        for (const int type : {0, kDataTypeCount - 1, kDataTypeCount}) {
          for (const bool has_buffer : {false, true}) {
            Call call{.collective = collective, .count = count, .peer = peer};
            call.type = static_cast<DataType>(type);
            if (has_buffer) call.in = call.out = memory;
            if (!is_plain_message(call, kSize)) continue;
            ++plain;
            CallShape shape;
            const Status checked = check_call(call, kSelf, kSize, &shape);
            EXPECT_TRUE(checked.ok()) << checked.message();
          }
        }
      }
    }
  }
  EXPECT_GT(plain, 0);
}

}  // namespace
}  // namespace unisono::test
