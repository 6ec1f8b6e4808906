// Lists: the order is rank, then original, and equals what one unchunked gathering gives.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "tests/objects/object_bytes.h"
#include "tests/support/rank_job.h"
#include "unisono/objects.h"

namespace unisono::test {
namespace {

using testing::ElementsAre;

constexpr std::size_t kLengths[] = {0, 1, 127, 128, 129, 1000};

std::size_t length_of(Rank rank, std::size_t shift) {
  return kLengths[(shift + static_cast<std::size_t>(rank) * 5) % std::size(kLengths)];
}

std::vector<std::int64_t> numbers_of(Rank rank, std::size_t length) {
  std::vector<std::int64_t> list(length);
  std::iota(list.begin(), list.end(), rank * 1'000'000);
  return list;
}

std::vector<std::string> words_of(Rank rank, std::size_t length) {
  std::vector<std::string> list;
  for (std::size_t i = 0; i < length; ++i) {
    list.push_back(std::string(i * 7 % 90, static_cast<char>('a' + rank)) + std::to_string(i));
  }
  return list;
}

template <typename List, typename Make>
List unchunked(int ranks, std::size_t shift, const Make& make) {
  List all;
  for (Rank rank = 0; rank < ranks; ++rank) {
    const List part = make(rank, length_of(rank, shift));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// What people write by hand: lengths first, then as many rounds of 128 elements as the longest
// list needs, then the pieces put in order.
std::vector<std::int64_t> by_hand(Communicator& comm, const std::vector<std::int64_t>& mine) {
  constexpr std::size_t kChunk = 128;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::vector<std::uint64_t> length{mine.size()};
  std::vector<std::uint64_t> lengths(ranks);
  comm.all_gather(length, lengths);
  const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<std::vector<std::int64_t>> lists(ranks);
  for (std::uint64_t begin = 0; begin < longest; begin += kChunk) {
    std::vector<std::size_t> counts(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      counts[r] = std::min<std::uint64_t>(kChunk, lengths[r] - std::min(lengths[r], begin));
    }
    std::vector<std::int64_t> round(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    const std::size_t own = counts[static_cast<std::size_t>(comm.rank())];
    comm.all_gather_v(own > 0 ? mine.data() + begin : nullptr, round.data(), counts, {},
                      DataType::kInt64);
    auto next = round.begin();
    for (std::size_t r = 0; r < ranks; ++r) {
      lists[r].insert(lists[r].end(), next, next + static_cast<std::ptrdiff_t>(counts[r]));
      next += static_cast<std::ptrdiff_t>(counts[r]);
    }
  }
  std::vector<std::int64_t> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

class Lists : public testing::TestWithParam<const char*> {};

TEST_P(Lists, OfMixedLengthsAreGatheredInOrder) {
  for (const int ranks : {1, 2, 3, 4, 5}) {
    run_ranks(ranks, GetParam(), [&](Communicator& comm) {
      for (std::size_t shift = 0; shift < std::size(kLengths); ++shift) {
        const std::size_t length = length_of(comm.rank(), shift);
        const auto numbers = numbers_of(comm.rank(), length);
        const auto words = words_of(comm.rank(), length);
        const auto all_numbers = unchunked<std::vector<std::int64_t>>(ranks, shift, numbers_of);
        const auto all_words = unchunked<std::vector<std::string>>(ranks, shift, words_of);
        EXPECT_EQ(by_hand(comm, numbers), all_numbers);
        for (const std::size_t staging : {0, 1500, 4096}) {
          const ObjectOptions options{.staging_bytes = staging};
          EXPECT_EQ(all_gather_list(comm, numbers, options), all_numbers);
          EXPECT_EQ(all_gather_list(comm, words, options), all_words);
        }
      }
    });
  }
}

TEST_P(Lists, LargerThanARoundAreGatheredInOrder) {
  run_ranks(3, GetParam(), [&](Communicator& comm) {
    const std::size_t lengths[] = {500'000, 0, 300'001};
    std::vector<std::int64_t> expected;
    for (const Rank rank : {0, 1, 2}) {
      const auto part = numbers_of(rank, lengths[rank]);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(all_gather_list(comm, numbers_of(comm.rank(), lengths[comm.rank()]),
                                {.staging_bytes = 1 << 16}) == expected);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Lists, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Lists, OfNothingAnywhereAreEmpty) {
  run_ranks(3, "auto", [](Communicator& comm) {
    EXPECT_TRUE(all_gather_list(comm, std::vector<int>{}).empty());
    EXPECT_TRUE(all_gather_list(comm, std::vector<std::string>{}).empty());
  });
}

TEST(Lists, OfBoolAndOfNestedVectorsKeepTheirElements) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const std::vector<bool> flags(static_cast<std::size_t>(comm.rank() + 1), comm.rank() != 1);
    EXPECT_THAT(all_gather_list(comm, flags), ElementsAre(true, false, false, true, true, true));
    const std::vector<std::vector<int>> nested(1, std::vector<int>{comm.rank(), 7});
    EXPECT_THAT(all_gather_list(comm, nested),
                ElementsAre(ElementsAre(0, 7), ElementsAre(1, 7), ElementsAre(2, 7)));
  });
}

// Ranks may hold the same elements in different containers.
TEST(Lists, TakeAnyRange) {
  run_ranks(2, "auto", [](Communicator& comm) {
    const std::deque<int> deque{1, 2};
    const int array[] = {3, 4, 5};
    const std::vector<int> all =
        comm.rank() == 0 ? all_gather_list(comm, deque) : all_gather_list(comm, std::span(array));
    EXPECT_THAT(all, ElementsAre(1, 2, 3, 4, 5));
  });
}

// Two elements, the second of which may throw when it is asked for.
template <typename T>
struct Unreliable {
  struct Iterator {
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    bool throws = false;
    int place = 0;

    T operator*() const {
      if (throws && place == 1) throw std::logic_error("on purpose");
      return T();
    }
    Iterator& operator++() {
      ++place;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++place;
      return before;
    }
    bool operator==(const Iterator& other) const { return place == other.place; }
  };
  bool throws = false;

  Iterator begin() const { return {throws, 0}; }
  Iterator end() const { return {throws, 2}; }
};

// The others learn of it instead of waiting.
TEST(Lists, WhoseRangeThrowsAreAnErrorOnEveryRank) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const bool throws = comm.rank() == 1;
    const auto calls = {
        std::function<void()>([&] { all_gather_list(comm, Unreliable<int>{throws}); }),
        std::function<void()>([&] { all_gather_list(comm, Unreliable<bool>{throws}); }),
        std::function<void()>([&] { all_gather_list(comm, Unreliable<std::string>{throws}); })};
    for (const auto& call : calls) {
      if (comm.rank() == 1) {
        EXPECT_THROW(call(), std::logic_error);
      } else {
        const Error error = error_of(call);
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
        EXPECT_EQ(error.rank(), 1) << error.what();
      }
    }
    comm.barrier();
  });
}

TEST(Lists, OfElementsAcrossManyRoundsStayWhole) {
  run_ranks(3, "auto", [](Communicator& comm) {
    const std::vector<std::string> mine{"", std::string(5000, static_cast<char>('a' + comm.rank())),
                                        "x"};
    const auto all = all_gather_list(comm, mine, {.staging_bytes = 6});
    ASSERT_EQ(all.size(), 9u);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(all[3 * r], "");
      EXPECT_EQ(all[3 * r + 1], std::string(5000, static_cast<char>('a' + r)));
      EXPECT_EQ(all[3 * r + 2], "x");
    }
  });
}

}  // namespace
}  // namespace unisono::test
