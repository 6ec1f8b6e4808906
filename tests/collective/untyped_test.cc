// The untyped forms of every collective, blocking and not, beside run() with the same call: each
// argument has to reach its place in it.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "base/collective.h"
#include "tests/support/rank_job.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using Numbers = std::vector<std::int32_t>;
using Counts = std::vector<std::size_t>;

constexpr int kWorldSize = 3;
constexpr Rank kRootRank = 1;
constexpr std::size_t kCount = 4, kRoom = 40;
constexpr DataType kType = DataType::kInt32;

// Blocks that differ in length, in another order than the ranks, with gaps.
const Counts kCounts{2, 1, 3}, kPlaces{8, 6, 1};

// What a rank gives to another one in all_to_all_v.
std::size_t given(Rank source, Rank target) {
  return static_cast<std::size_t>(source + 2 * target);
}

struct Form {
  Call call;
  std::function<void(const void* in, void* out, const CallOptions& options)> run;
  std::function<Request(const void* in, void* out, const CallOptions& options)> start;
};

#define FORMS(name, ...)                                                                         \
  [&](const void* in [[maybe_unused]], void* out [[maybe_unused]], const CallOptions& options) { \
    comm.name(__VA_ARGS__ __VA_OPT__(, ) options);                                               \
  },                                                                                             \
      [&](const void* in [[maybe_unused]], void* out [[maybe_unused]],                           \
          const CallOptions& options) {                                                          \
        return comm.name##_async(__VA_ARGS__ __VA_OPT__(, ) options);                            \
      }

// As it stands in run(), without buffers.
Call call_of(Collective collective) {
  return {
      .collective = collective, .count = kCount, .type = kType, .op = ops::max, .root = kRootRank};
}

Call uneven(Collective collective, std::size_t count, const Counts& in, const Counts& in_places,
            const Counts& out, const Counts& out_places) {
  Call call = call_of(collective);
  call.count = count;
  call.in_counts = in;
  call.in_displacements = in_places;
  call.out_counts = out;
  call.out_displacements = out_places;
  return call;
}

// The same bytes in all three outputs, and no form that loses its options.
void compare(Communicator& comm, const Form& form) {
  const std::string_view name = name_of(form.call.collective);
  Numbers in(kRoom), fresh(kRoom);
  std::iota(in.begin(), in.end(), 100 * comm.rank());
  std::iota(fresh.begin(), fresh.end(), -1000 * (comm.rank() + 1));
  Numbers by_run = fresh, blocking = fresh, async = fresh;
  const bool is_one_buffer = facts_of(form.call.collective).in_place == InPlace::kAlways;
  Call call = form.call;
  call.in = is_one_buffer ? by_run.data() : in.data();
  call.out = by_run.data();
  comm.run(call);
  form.run(in.data(), blocking.data(), {});
  EXPECT_EQ(blocking, by_run) << name;
  form.start(in.data(), async.data(), {}).wait();
  EXPECT_EQ(async, by_run) << name << "_async";
  const CallOptions unknown{.algorithm = "none such"};
  EXPECT_THROW(form.run(in.data(), blocking.data(), unknown), Error) << name;
  EXPECT_THROW(form.start(in.data(), async.data(), unknown), Error) << name << "_async";
}

TEST(UntypedCalls, AreTheSameAsRun) {
  run_ranks(kWorldSize, "auto", [](Communicator& comm) {
    const Rank self = comm.rank();
    const std::size_t own = kCounts[static_cast<std::size_t>(self)];
    const Counts none, at_root = self == kRootRank ? kCounts : none,
                       placed_at_root = self == kRootRank ? kPlaces : none;
    const ReduceOp op = ops::max;
    Counts give, take, give_at{20, 10, 0}, take_at{0, 11, 22};
    for (Rank other = 0; other < kWorldSize; ++other) {
      give.push_back(given(self, other));
      take.push_back(given(other, self));
    }
    using C = Collective;
    const std::vector<Form> forms{
        {call_of(C::kAllReduce), FORMS(all_reduce, in, out, kCount, kType, op)},
        {call_of(C::kReduce), FORMS(reduce, in, out, kCount, kType, op, kRootRank)},
        {call_of(C::kBroadcast), FORMS(broadcast, out, kCount, kType, kRootRank)},
        {call_of(C::kAllGather), FORMS(all_gather, in, out, kCount, kType)},
        {uneven(C::kAllGatherV, 0, none, none, kCounts, kPlaces),
         FORMS(all_gather_v, in, out, kCounts, kPlaces, kType)},
        {call_of(C::kReduceScatter), FORMS(reduce_scatter, in, out, kCount, kType, op)},
        {uneven(C::kReduceScatterV, 0, kCounts, none, none, none),
         FORMS(reduce_scatter_v, in, out, kCounts, kType, op)},
        {call_of(C::kGather), FORMS(gather, in, out, kCount, kType, kRootRank)},
        {uneven(C::kGatherV, own, none, none, at_root, placed_at_root),
         FORMS(gather_v, in, own, out, at_root, placed_at_root, kType, kRootRank)},
        {call_of(C::kScatter), FORMS(scatter, in, out, kCount, kType, kRootRank)},
        {uneven(C::kScatterV, own, at_root, placed_at_root, none, none),
         FORMS(scatter_v, in, at_root, placed_at_root, out, own, kType, kRootRank)},
        {call_of(C::kAllToAll), FORMS(all_to_all, in, out, kCount, kType)},
        {uneven(C::kAllToAllV, 0, give, give_at, take, take_at),
         FORMS(all_to_all_v, in, give, give_at, out, take, take_at, kType)},
        {call_of(C::kBarrier), FORMS(barrier)},
        {call_of(C::kScan), FORMS(scan, in, out, kCount, kType, op)},
        {call_of(C::kExscan), FORMS(exscan, in, out, kCount, kType, op)},
    };
    std::size_t collectives = 0;
    for (const CollectiveFacts& facts : collective_rows::kAll) collectives += facts.is_collective();
    EXPECT_EQ(forms.size(), collectives);
    for (const Form& form : forms) compare(comm, form);
  });
}

// The blocks of a reduction lie end to end, whatever else the call says.
TEST(UntypedCalls, OfAReductionReadNoDisplacements) {
  run_ranks(kWorldSize, "auto", [](Communicator& comm) {
    const Counts beyond(kWorldSize, std::size_t{1} << 40);
    const Numbers in(kRoom, comm.rank());
    Numbers out(kRoom, -1);
    Call call = uneven(Collective::kReduceScatterV, 0, kCounts, beyond, {}, {});
    call.in = in.data();
    call.out = out.data();
    comm.run(call);
    Numbers wanted(kRoom, -1);
    std::fill_n(wanted.begin(), kCounts[static_cast<std::size_t>(comm.rank())], kWorldSize - 1);
    EXPECT_EQ(out, wanted);
  });
}

}  // namespace
}  // namespace unisono::test
