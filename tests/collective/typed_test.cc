// The typed forms of every collective: two buffers or one, blocking or not, and lengths that do not
// fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/rank_job.h"
#include "unisono/unisono.h"

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

template <typename Body>
void run_typed(const Body& body) {
  run_ranks(kRanks, "auto", body);
}

TEST(TypedCalls, Reduce) {
  run_typed([](Communicator& comm) {
    const Numbers in = numbers(comm.rank());
    const Numbers total = summed(kRanks, kBlock);
    const bool is_root = comm.rank() == kRoot;
    for (const bool async : {false, true}) {
      Numbers out(kBlock), data = in;
      async ? comm.all_reduce_async(in, out, ops::sum).wait() : comm.all_reduce(in, out, ops::sum);
      EXPECT_EQ(out, total);
      async ? comm.all_reduce_async(data, ops::sum).wait() : comm.all_reduce(data, ops::sum);
      EXPECT_EQ(data, total);

      out.assign(is_root ? kBlock : 0, 0);
      async ? comm.reduce_async(in, out, ops::sum, kRoot).wait()
            : comm.reduce(in, out, ops::sum, kRoot);
      if (is_root) {
        EXPECT_EQ(out, total);
      }
      data = in;
      async ? comm.reduce_async(data, ops::sum, kRoot).wait() : comm.reduce(data, ops::sum, kRoot);
      EXPECT_EQ(data, is_root ? total : in);

      out.assign(kBlock, -1);
      async ? comm.scan_async(in, out, ops::sum).wait() : comm.scan(in, out, ops::sum);
      EXPECT_EQ(out, summed(comm.rank() + 1, kBlock));
      data = in;
      async ? comm.scan_async(data, ops::sum).wait() : comm.scan(data, ops::sum);
      EXPECT_EQ(data, summed(comm.rank() + 1, kBlock));

      out.assign(kBlock, -1);
      async ? comm.exscan_async(in, out, ops::sum).wait() : comm.exscan(in, out, ops::sum);
      EXPECT_EQ(out, comm.rank() == 0 ? Numbers(kBlock, -1) : summed(comm.rank(), kBlock));
      data = in;
      async ? comm.exscan_async(data, ops::sum).wait() : comm.exscan(data, ops::sum);
      EXPECT_EQ(data, comm.rank() == 0 ? in : summed(comm.rank(), kBlock));
    }
  });
}

TEST(TypedCalls, ReduceBlocks) {
  run_typed([](Communicator& comm) {
    const Rank self = comm.rank();
    const Numbers in = numbers(self, kAll), uneven = numbers(self, kAllUneven);
    const Numbers block = slice(summed(kRanks, kAll), at(self), kBlock);
    const Numbers part = slice(summed(kRanks, kAllUneven), first_of(self), count_of(self));
    for (const bool async : {false, true}) {
      Numbers out(kBlock), data = in;
      async ? comm.reduce_scatter_async(in, out, ops::sum).wait()
            : comm.reduce_scatter(in, out, ops::sum);
      EXPECT_EQ(out, block);
      async ? comm.reduce_scatter_async(data, ops::sum).wait()
            : comm.reduce_scatter(data, ops::sum);
      EXPECT_EQ(slice(data, at(self), kBlock), block);

      out.assign(count_of(self), 0);
      async ? comm.reduce_scatter_v_async(uneven, out, kUneven, ops::sum).wait()
            : comm.reduce_scatter_v(uneven, out, kUneven, ops::sum);
      EXPECT_EQ(out, part);
      data = uneven;
      async ? comm.reduce_scatter_v_in_place_async(data, kUneven, ops::sum).wait()
            : comm.reduce_scatter_v_in_place(data, kUneven, ops::sum);
      EXPECT_EQ(slice(data, first_of(self), count_of(self)), part);
    }
  });
}

TEST(TypedCalls, Gather) {
  run_typed([](Communicator& comm) {
    const Rank self = comm.rank();
    const bool is_root = self == kRoot;
    const Numbers in = numbers(self), all = concatenated(kEven);
    for (const bool async : {false, true}) {
      Numbers out(kAll), data(kAll);
      async ? comm.all_gather_async(in, out).wait() : comm.all_gather(in, out);
      EXPECT_EQ(out, all);
      put(in, at(self), &data);
      async ? comm.all_gather_async(data).wait() : comm.all_gather(data);
      EXPECT_EQ(data, all);

      out.assign(is_root ? kAll : 0, 0);
      async ? comm.gather_async(in, out, kRoot).wait() : comm.gather(in, out, kRoot);
      if (is_root) {
        EXPECT_EQ(out, all);
      }
      data = in;
      if (is_root) {
        data.assign(kAll, 0);
        put(in, at(self), &data);
      }
      async ? comm.gather_async(data, kRoot).wait() : comm.gather(data, kRoot);
      EXPECT_EQ(data, is_root ? all : in);
    }
  });
}

TEST(TypedCalls, GatherUnevenBlocks) {
  run_typed([](Communicator& comm) {
    const Rank self = comm.rank();
    const bool is_root = self == kRoot;
    const Numbers in = numbers(self, count_of(self)), all = concatenated(kUneven);
    const Counts counts = is_root ? kUneven : Counts(), firsts = is_root ? kFirst : Counts();
    for (const bool async : {false, true}) {
      Numbers out(kAllUneven), data(kAllUneven);
      async ? comm.all_gather_v_async(in, out, kUneven, kFirst).wait()
            : comm.all_gather_v(in, out, kUneven, kFirst);
      EXPECT_EQ(out, all);
      put(in, first_of(self), &data);
      async ? comm.all_gather_v_in_place_async(data, kUneven, kFirst).wait()
            : comm.all_gather_v_in_place(data, kUneven, kFirst);
      EXPECT_EQ(data, all);

      out.assign(is_root ? kAllUneven : 0, 0);
      async ? comm.gather_v_async(in, out, counts, firsts, kRoot).wait()
            : comm.gather_v(in, out, counts, firsts, kRoot);
      if (is_root) {
        EXPECT_EQ(out, all);
      }
      data = in;
      if (is_root) {
        data.assign(kAllUneven, 0);
        put(in, first_of(self), &data);
      }
      async ? comm.gather_v_in_place_async(data, counts, firsts, kRoot).wait()
            : comm.gather_v_in_place(data, counts, firsts, kRoot);
      EXPECT_EQ(data, is_root ? all : in);
    }
  });
}

TEST(TypedCalls, Scatter) {
  run_typed([](Communicator& comm) {
    const Rank self = comm.rank();
    const bool is_root = self == kRoot;
    const Numbers all = concatenated(kEven), uneven = concatenated(kUneven), none;
    const Counts counts = is_root ? kUneven : Counts(), firsts = is_root ? kFirst : Counts();
    for (const bool async : {false, true}) {
      Numbers out(kBlock), data = is_root ? all : Numbers(kBlock);
      async ? comm.scatter_async(is_root ? all : none, out, kRoot).wait()
            : comm.scatter(is_root ? all : none, out, kRoot);
      EXPECT_EQ(out, numbers(self));
      async ? comm.scatter_async(data, kRoot).wait() : comm.scatter(data, kRoot);
      EXPECT_EQ(slice(data, is_root ? at(self) : 0, kBlock), numbers(self));

      out.assign(count_of(self), 0);
      async ? comm.scatter_v_async(is_root ? uneven : none, counts, firsts, out, kRoot).wait()
            : comm.scatter_v(is_root ? uneven : none, counts, firsts, out, kRoot);
      EXPECT_EQ(out, numbers(self, count_of(self)));
      data = is_root ? uneven : Numbers(count_of(self));
      async ? comm.scatter_v_in_place_async(data, counts, firsts, kRoot).wait()
            : comm.scatter_v_in_place(data, counts, firsts, kRoot);
      EXPECT_EQ(slice(data, is_root ? first_of(self) : 0, count_of(self)),
                numbers(self, count_of(self)));
    }
  });
}

// Rank r sends rank s `kBlock` numbers of 10 * r + s.
TEST(TypedCalls, ExchangeAndBroadcast) {
  run_typed([](Communicator& comm) {
    const Rank self = comm.rank();
    Numbers in(kAll), expected(kAll);
    for (std::size_t i = 0; i < kAll; ++i) {
      const auto other = static_cast<Rank>(i / kBlock);
      in[i] = 10 * self + other;
      expected[i] = 10 * other + self;
    }
    for (const bool async : {false, true}) {
      Numbers out(kAll), data = in;
      async ? comm.all_to_all_async(in, out).wait() : comm.all_to_all(in, out);
      EXPECT_EQ(out, expected);
      async ? comm.all_to_all_async(data).wait() : comm.all_to_all(data);
      EXPECT_EQ(data, expected);
      out.assign(kAll, 0);
      async ? comm.all_to_all_v_async(in, kEven, {}, out, kEven, {}).wait()
            : comm.all_to_all_v(in, kEven, {}, out, kEven, {});
      EXPECT_EQ(out, expected);
      data = numbers(self);
      async ? comm.broadcast_async(data, kRoot).wait() : comm.broadcast(data, kRoot);
      EXPECT_EQ(data, numbers(kRoot));
      async ? comm.barrier_async().wait() : comm.barrier();

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
  run_typed([](Communicator& comm) {
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
  run_typed([](Communicator& comm) {
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
  run_typed([](Communicator& comm) {
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
  run_typed([](Communicator& comm) {
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
