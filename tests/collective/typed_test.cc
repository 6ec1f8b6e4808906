// The typed forms of every collective: two buffers or one, blocking or not, and lengths that do not
// fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/collective.h"
#include "tests/support/rank_job.h"
#include "unisono/unisono.hpp"

namespace unisono::test {
namespace {

using Numbers = std::vector<std::int32_t>;
using Counts = std::vector<std::size_t>;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kBlock = 4;
constexpr Rank kRoot = 1;

/// Which tell the rank and their place.
Numbers numbers(Rank rank, std::size_t count = kBlock) {
  Numbers made(count);
  for (std::size_t i = 0; i < count; ++i) {
    made[i] = 100 * rank + static_cast<std::int32_t>(i);
  }
  return made;
}

Numbers slice(const Numbers& from, std::size_t first, std::size_t count) {
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

void put(const Numbers& block, std::size_t at, Numbers* into) {
  std::copy(block.begin(), block.end(), into->begin() + static_cast<std::ptrdiff_t>(at));
}

Numbers concatenated(const Counts& counts) {
  Numbers all;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const Numbers block = numbers(rank, counts[static_cast<std::size_t>(rank)]);
    all.insert(all.end(), block.begin(), block.end());
  }
  return all;
}

Numbers summed(Rank ranks, std::size_t count) {
  Numbers total(count);
  for (Rank rank = 0; rank < ranks; ++rank) {
    const Numbers one = numbers(rank, count);
    for (std::size_t i = 0; i < count; ++i) total[i] += one[i];
  }
  return total;
}

const Counts kEven(kRanks, kBlock), kUneven{2, 0, 5}, kFirst{0, 2, 2};
constexpr std::size_t kAll = kRanks * kBlock, kAllUneven = 7;

std::size_t at(Rank rank) { return static_cast<std::size_t>(rank) * kBlock; }
std::size_t count_of(Rank rank) { return kUneven[static_cast<std::size_t>(rank)]; }
std::size_t first_of(Rank rank) { return kFirst[static_cast<std::size_t>(rank)]; }

// On how many buffers, and whether it is only started.
using TypedForm = std::tuple<Collective, int, bool>;
using TypedForms = std::set<TypedForm>;

Collective collective_of(std::string_view name) {
  constexpr std::string_view kInPlace = "_in_place";
  if (name.ends_with(kInPlace)) name.remove_suffix(kInPlace.size());
  Collective collective = Collective::kSend;
  EXPECT_TRUE(parse(name, &collective)) << name;
  return collective;
}

// What the table says that there has to be.
TypedForms forms_of_the_table() {
  TypedForms forms;
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    if (!facts.is_collective()) continue;
    for (const bool async : {false, true}) {
      if (!facts.has_buffers()) {
        forms.emplace(facts.collective, 0, async);
        continue;
      }
      if (facts.in_place != InPlace::kNever) forms.emplace(facts.collective, 1, async);
      if (facts.in_place != InPlace::kAlways) forms.emplace(facts.collective, 2, async);
    }
  }
  return forms;
}

// Calls one form, blocking or not, and notes which.
#define CALL_FORM(buffers, name, ...)                     \
  (forms.emplace(collective_of(#name), (buffers), async), \
   async ? comm.name##_async(__VA_ARGS__).wait() : comm.name(__VA_ARGS__))
#define CALL(...) CALL_FORM(2, __VA_ARGS__)
#define CALL_IN_PLACE(...) CALL_FORM(1, __VA_ARGS__)

void call_reductions(Communicator& comm, TypedForms& forms) {
  const Numbers in = numbers(comm.rank());
  const Numbers total = summed(kRanks, kBlock);
  const bool is_root = comm.rank() == kRoot;
  for (const bool async : {false, true}) {
    Numbers out(kBlock), data = in;
    CALL(all_reduce, in, out, ops::sum);
    EXPECT_EQ(out, total);
    CALL_IN_PLACE(all_reduce, data, ops::sum);
    EXPECT_EQ(data, total);

    out.assign(is_root ? kBlock : 0, 0);
    CALL(reduce, in, out, ops::sum, kRoot);
    if (is_root) {
      EXPECT_EQ(out, total);
    }
    data = in;
    CALL_IN_PLACE(reduce, data, ops::sum, kRoot);
    EXPECT_EQ(data, is_root ? total : in);

    out.assign(kBlock, -1);
    CALL(scan, in, out, ops::sum);
    EXPECT_EQ(out, summed(comm.rank() + 1, kBlock));
    data = in;
    CALL_IN_PLACE(scan, data, ops::sum);
    EXPECT_EQ(data, summed(comm.rank() + 1, kBlock));

    out.assign(kBlock, -1);
    CALL(exscan, in, out, ops::sum);
    EXPECT_EQ(out, comm.rank() == 0 ? Numbers(kBlock, -1) : summed(comm.rank(), kBlock));
    data = in;
    CALL_IN_PLACE(exscan, data, ops::sum);
    EXPECT_EQ(data, comm.rank() == 0 ? in : summed(comm.rank(), kBlock));
  }
}

void call_reductions_of_blocks(Communicator& comm, TypedForms& forms) {
  const Rank self = comm.rank();
  const Numbers in = numbers(self, kAll), uneven = numbers(self, kAllUneven);
  const Numbers block = slice(summed(kRanks, kAll), at(self), kBlock);
  const Numbers part = slice(summed(kRanks, kAllUneven), first_of(self), count_of(self));
  for (const bool async : {false, true}) {
    Numbers out(kBlock), data = in;
    CALL(reduce_scatter, in, out, ops::sum);
    EXPECT_EQ(out, block);
    CALL_IN_PLACE(reduce_scatter, data, ops::sum);
    EXPECT_EQ(slice(data, at(self), kBlock), block);

    out.assign(count_of(self), 0);
    CALL(reduce_scatter_v, uneven, out, kUneven, ops::sum);
    EXPECT_EQ(out, part);
    data = uneven;
    CALL_IN_PLACE(reduce_scatter_v_in_place, data, kUneven, ops::sum);
    EXPECT_EQ(slice(data, first_of(self), count_of(self)), part);
  }
}

void call_gathers(Communicator& comm, TypedForms& forms) {
  const Rank self = comm.rank();
  const bool is_root = self == kRoot;
  const Numbers in = numbers(self), all = concatenated(kEven);
  for (const bool async : {false, true}) {
    Numbers out(kAll), data(kAll);
    CALL(all_gather, in, out);
    EXPECT_EQ(out, all);
    put(in, at(self), &data);
    CALL_IN_PLACE(all_gather, data);
    EXPECT_EQ(data, all);

    out.assign(is_root ? kAll : 0, 0);
    CALL(gather, in, out, kRoot);
    if (is_root) {
      EXPECT_EQ(out, all);
    }
    data = in;
    if (is_root) {
      data.assign(kAll, 0);
      put(in, at(self), &data);
    }
    CALL_IN_PLACE(gather, data, kRoot);
    EXPECT_EQ(data, is_root ? all : in);
  }
}

void call_gathers_of_uneven_blocks(Communicator& comm, TypedForms& forms) {
  const Rank self = comm.rank();
  const bool is_root = self == kRoot;
  const Numbers in = numbers(self, count_of(self)), all = concatenated(kUneven);
  const Counts counts = is_root ? kUneven : Counts(), firsts = is_root ? kFirst : Counts();
  for (const bool async : {false, true}) {
    Numbers out(kAllUneven), data(kAllUneven);
    CALL(all_gather_v, in, out, kUneven, kFirst);
    EXPECT_EQ(out, all);
    put(in, first_of(self), &data);
    CALL_IN_PLACE(all_gather_v_in_place, data, kUneven, kFirst);
    EXPECT_EQ(data, all);

    out.assign(is_root ? kAllUneven : 0, 0);
    CALL(gather_v, in, out, counts, firsts, kRoot);
    if (is_root) {
      EXPECT_EQ(out, all);
    }
    data = in;
    if (is_root) {
      data.assign(kAllUneven, 0);
      put(in, first_of(self), &data);
    }
    CALL_IN_PLACE(gather_v_in_place, data, counts, firsts, kRoot);
    EXPECT_EQ(data, is_root ? all : in);
  }
}

void call_scatters(Communicator& comm, TypedForms& forms) {
  const Rank self = comm.rank();
  const bool is_root = self == kRoot;
  const Numbers all = concatenated(kEven), uneven = concatenated(kUneven), none;
  const Counts counts = is_root ? kUneven : Counts(), firsts = is_root ? kFirst : Counts();
  for (const bool async : {false, true}) {
    Numbers out(kBlock), data = is_root ? all : Numbers(kBlock);
    CALL(scatter, is_root ? all : none, out, kRoot);
    EXPECT_EQ(out, numbers(self));
    CALL_IN_PLACE(scatter, data, kRoot);
    EXPECT_EQ(slice(data, is_root ? at(self) : 0, kBlock), numbers(self));

    out.assign(count_of(self), 0);
    CALL(scatter_v, is_root ? uneven : none, counts, firsts, out, kRoot);
    EXPECT_EQ(out, numbers(self, count_of(self)));
    data = is_root ? uneven : Numbers(count_of(self));
    CALL_IN_PLACE(scatter_v_in_place, data, counts, firsts, kRoot);
    EXPECT_EQ(slice(data, is_root ? first_of(self) : 0, count_of(self)),
              numbers(self, count_of(self)));
  }
}

// Rank r sends rank s `kBlock` numbers of 10 * r + s.
void call_exchanges_and_broadcasts(Communicator& comm, TypedForms& forms) {
  const Rank self = comm.rank();
  Numbers in(kAll), expected(kAll);
  for (std::size_t i = 0; i < kAll; ++i) {
    const auto other = static_cast<Rank>(i / kBlock);
    in[i] = 10 * self + other;
    expected[i] = 10 * other + self;
  }
  for (const bool async : {false, true}) {
    Numbers out(kAll), data = in;
    CALL(all_to_all, in, out);
    EXPECT_EQ(out, expected);
    CALL_IN_PLACE(all_to_all, data);
    EXPECT_EQ(data, expected);
    out.assign(kAll, 0);
    CALL(all_to_all_v, in, kEven, {}, out, kEven, {});
    EXPECT_EQ(out, expected);
    data = numbers(self);
    CALL_IN_PLACE(broadcast, data, kRoot);
    EXPECT_EQ(data, numbers(kRoot));
    CALL_FORM(0, barrier);

    const Rank next = (self + 1) % kRanks, last = (self + kRanks - 1) % kRanks;
    out.assign(kBlock, 0);
    const Numbers given = numbers(self);
    Request sent = comm.send_async(given, next);
    if (async) {
      comm.receive_async(out, last).wait();
    } else {
      EXPECT_EQ(comm.receive(out, last).count, static_cast<std::size_t>(kBlock));
    }
    sent.wait();
    EXPECT_EQ(out, numbers(last));
  }
}

// Each of these calls forms and checks what comes of them.
constexpr void (*kCalls[])(Communicator&, TypedForms&){
    call_reductions, call_reductions_of_blocks,    call_gathers, call_gathers_of_uneven_blocks,
    call_scatters,   call_exchanges_and_broadcasts};

TEST(TypedCalls, OfEveryFormDoWhatTheyShould) {
  run_ranks(kRanks, "auto", [](Communicator& comm) {
    TypedForms forms;
    for (const auto& call : kCalls) call(comm, forms);
    EXPECT_EQ(forms, forms_of_the_table()) << "a form is missing, or not called here";
  });
}

/// What a call on one rank is refused for; the communicator goes on.
template <typename Body>
std::string refusal(const Body& call) {
  std::string why;
  run_ranks(kRanks, "auto", [&](Communicator& comm) {
    try {
      call(comm);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      if (comm.rank() == kRoot) why = error.what();
    }
    comm.barrier();
  });
  return why;
}

TEST(TypedCalls, NameTheBufferThatIsTooShort) {
  Numbers four(4), eleven(11), twelve(12);
  using C = Communicator;
  EXPECT_THAT(refusal([&](C& comm) { comm.all_reduce(Numbers(5), four, ops::sum); }),
              HasSubstr("out has 4 elements and 5 are needed"));
  EXPECT_THAT(refusal([&](C& comm) { comm.all_gather(Numbers(4), eleven); }),
              HasSubstr("out has 11 elements and 12 are needed"));
  EXPECT_THAT(refusal([&](C& comm) { comm.reduce_scatter(eleven, four, ops::sum); }),
              HasSubstr("in has 11 elements and 12 are needed"));
  EXPECT_THAT(refusal([&](C& comm) { comm.all_to_all(twelve, eleven); }),
              HasSubstr("out has 11 elements and 12 are needed"));
  EXPECT_THAT(refusal([&](C& comm) {
                comm.all_gather_v(four, eleven, Counts{4, 4, 4}, {});
              }),
              HasSubstr("out has 11 elements and 12 are needed"));
  EXPECT_THAT(refusal([&](C& comm) {
                comm.all_gather_v_in_place(eleven, Counts{4, 4, 4}, {});
              }),
              HasSubstr("out has 11 elements and 12 are needed"));
  EXPECT_THAT(refusal([&](C& comm) {
                comm.reduce_scatter_v_in_place(twelve, Counts{4, 4}, ops::sum);
              }),
              HasSubstr("2 counts"));
}

TEST(TypedCalls, NameABufferThatMakesNoBlocks) {
  Numbers eleven(11), twelve(12);
  using C = Communicator;
  const auto says = HasSubstr("11 elements, which make no blocks of one length for 3 ranks");
  EXPECT_THAT(refusal([&](C& comm) { comm.all_to_all(eleven, twelve); }), says);
  EXPECT_THAT(refusal([&](C& comm) { comm.all_gather(eleven); }), says);
  EXPECT_THAT(refusal([&](C& comm) { comm.reduce_scatter(eleven, ops::sum); }), says);
}

// Elements and counts are of one type then, and none is taken for the other.
TEST(TypedCalls, ReduceAndGatherWhatCouldBeCounts) {
  run_ranks(kRanks, "auto", [](Communicator& comm) {
    const std::vector<std::size_t> counts(kRanks, 1), in(1, 7);
    std::vector<std::size_t> out(kRanks), data(kRanks, 7);
    comm.all_gather_v(in, out, counts, {});
    EXPECT_EQ(out, std::vector<std::size_t>(kRanks, 7));
    comm.all_gather_v_in_place(data, counts, {});
    EXPECT_EQ(data, std::vector<std::size_t>(kRanks, 7));
    out.assign(1, 0);
    comm.reduce_scatter_v(data, out, counts, ops::sum);
    EXPECT_EQ(out[0], 7u * kRanks);
    EXPECT_EQ(data, std::vector<std::size_t>(kRanks, 7)) << "it was the input";
  });
}

TEST(TypedCalls, TakeLongerBuffersThanTheyNeed) {
  run_ranks(kRanks, "auto", [](Communicator& comm) {
    const Rank self = comm.rank();
    const bool is_root = self == kRoot;
    const Numbers in = numbers(self);
    Numbers out(kAll + 5, -1);
    comm.all_gather(in, out);
    EXPECT_EQ(slice(out, 0, kAll), concatenated(kEven));
    EXPECT_EQ(slice(out, kAll, 5), Numbers(5, -1));
    out.assign(kBlock + 1, -1);
    comm.all_reduce(in, out, ops::sum);
    EXPECT_EQ(out[kBlock], -1);
    // What the root has of its own says counts[root].
    const Numbers uneven = concatenated(kUneven), none;
    const Counts counts = is_root ? kUneven : Counts();
    out.assign(count_of(self) + (is_root ? 3 : 0), -1);
    comm.scatter_v(is_root ? uneven : none, counts, {}, out, kRoot);
    EXPECT_EQ(slice(out, 0, count_of(self)), numbers(self, count_of(self)));
    const Numbers given = numbers(self, count_of(self) + (is_root ? 3 : 0));
    out.assign(is_root ? kAllUneven : 0, -1);
    comm.gather_v(given, out, counts, {}, kRoot);
    if (is_root) {
      EXPECT_EQ(out, uneven);
    }
  });
}

TEST(TypedCalls, TakeEmptyBuffersAndOneRank) {
  run_ranks(kRanks, "auto", [](Communicator& comm) {
    Numbers none;
    comm.all_reduce(none, ops::sum);
    comm.all_gather(none, none);
    comm.reduce_scatter(none, none, ops::sum);
    comm.all_to_all(none);
  });
  run_ranks(1, "auto", [](Communicator& comm) {
    const Numbers in = numbers(3);
    Numbers out(kBlock);
    comm.all_gather_v(in, out, Counts{kBlock}, {});
    EXPECT_EQ(out, in);
    out.assign(kBlock, 0);
    comm.reduce_scatter(in, out, ops::sum);
    EXPECT_EQ(out, in);
  });
}

// Whatever the buffers and counts are.
TEST(TypedCalls, OfAnEmptyCommunicatorSayThatItIsOne) {
  Communicator empty;
  Numbers in(1), out(1);
  const auto refused = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kOk;
  };
  const Counts none, one{1};
  const auto kNotMember = ErrorCode::kNotMember;
  EXPECT_EQ(refused([&] { empty.all_reduce(in, out, ops::sum); }), kNotMember);
  EXPECT_EQ(refused([&] { empty.all_gather(in, out); }), kNotMember);
  EXPECT_EQ(refused([&] { empty.all_gather_v(in, out, none, {}); }), kNotMember);
  EXPECT_EQ(refused([&] { empty.all_gather_v_in_place(out, one, {}); }), kNotMember);
  EXPECT_EQ(refused([&] { empty.all_to_all(out); }), kNotMember);
  EXPECT_EQ(refused([&] { empty.subset(std::vector<Rank>{0}); }), kNotMember);
}

TEST(TypedCalls, NeedAPeer) {
  run_ranks(kRanks, "auto", [](Communicator& comm) {
    const int value = 0;
    try {
      comm.run({.collective = Collective::kSend, .in = &value, .count = 1, .root = 0});
      ADD_FAILURE() << "sent to nobody in particular";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("names no peer"));
    }
  });
}

// A request lends what it is given, so that has to live on.
template <typename R>
concept LendsToASend = requires(Communicator& comm, R&& buffer) {
  comm.send_async(std::forward<R>(buffer), 0);
};
template <typename R>
concept LendsToAReduction = requires(Communicator& comm, R&& buffer) {
  comm.all_reduce_async(std::forward<R>(buffer), ops::sum);
};
static_assert(LendsToASend<Numbers&> && LendsToASend<const Numbers&> && !LendsToASend<Numbers>);
static_assert(LendsToAReduction<Numbers&> && !LendsToAReduction<Numbers>);
static_assert(LendsToASend<std::span<int>> && LendsToAReduction<std::span<int>>);

}  // namespace
}  // namespace unisono::test
