// all_reduce_addends: the same bits however the addends are dealt out to ranks.
#include "unisono/addends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/support/exact_oracle.h"
#include "tests/support/rank_job.h"
#include "unisono/float_types.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;
using Vectors = std::vector<std::vector<float>>;

// Sums of these are rounded, in every order otherwise.
Vectors random_vectors(std::size_t vectors, std::size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Vectors made(vectors, std::vector<float>(count));
  for (auto& vector : made) {
    for (float& value : vector) {
      value = std::ldexp(uniform(random), static_cast<int>(random() % 60));
    }
  }
  return made;
}

float tree(const Vectors& vectors, std::size_t low, std::size_t high, std::size_t i) {
  if (high - low == 1) return vectors[low][i];
  const std::size_t middle = low + std::bit_floor(high - low - 1);
  return tree(vectors, low, middle, i) + tree(vectors, middle, high, i);
}

std::vector<float> expected_sums(const Vectors& vectors, Order order) {
  std::vector<float> sums;
  for (std::size_t i = 0; i < vectors[0].size(); ++i) {
    std::vector<double> addends;
    for (const auto& vector : vectors) addends.push_back(vector[i]);
    sums.push_back(order == Order::kExact
                       ? static_cast<float>(exact_test::rounded_sum(DataType::kFloat32, addends))
                       : tree(vectors, 0, vectors.size(), i));
  }
  return sums;
}

// How many of the addends each rank has.
using Deal = std::vector<std::size_t>;

template <typename T>
std::vector<std::span<const T>> dealt_to(int rank, const Deal& deal,
                                         const std::vector<std::vector<T>>& vectors) {
  const auto self = static_cast<std::size_t>(rank);
  const std::size_t first = std::accumulate(deal.begin(), deal.begin() + rank, std::size_t{0});
  return {vectors.begin() + static_cast<std::ptrdiff_t>(first),
          vectors.begin() + static_cast<std::ptrdiff_t>(first + deal[self])};
}

const std::vector<Deal> kDealsOfSeven{{7},          {4, 3},          {3, 2, 2}, {0, 7, 0},
                                      {1, 1, 1, 4}, {2, 1, 1, 2, 1}, {7, 0}};

TEST(Addends, SumsDoNotDependOnHowTheyAreDealtOut) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{2500}}) {
    const Vectors vectors = random_vectors(7, count);
    for (const Order order : {Order::kCanonical, Order::kExact}) {
      const std::vector<float> expected = expected_sums(vectors, order);
      for (const Deal& deal : kDealsOfSeven) {
        for (const char* transport : {"auto", "loopback"}) {
          run_ranks(static_cast<int>(deal.size()), transport, [&](Communicator& comm) {
            std::vector<float> sums(count);
            all_reduce_addends(comm, dealt_to(comm.rank(), deal, vectors), sums, ops::sum,
                               {.order = order});
            EXPECT_EQ(sums, expected) << deal.size() << " ranks, " << name_of(order);
          });
        }
      }
    }
  }
}

TEST(Addends, TheirOrderDoesNotMatterInTheExactOrder) {
  Vectors vectors = random_vectors(7, 100);
  const std::vector<float> expected = expected_sums(vectors, Order::kExact);
  std::ranges::reverse(vectors);
  run_ranks(2, "auto", [&](Communicator& comm) {
    std::vector<float> sums(100);
    all_reduce_addends(comm, dealt_to(comm.rank(), {5, 2}, vectors), sums, ops::sum,
                       {.order = Order::kExact});
    EXPECT_EQ(sums, expected);
  });
}

TEST(Addends, LongVectorsGoInPieces) {
  constexpr std::size_t kCount = 1'500'001;
  std::vector<std::vector<std::int32_t>> vectors(5, std::vector<std::int32_t>(kCount));
  for (std::size_t k = 0; k < vectors.size(); ++k) {
    for (std::size_t i = 0; i < kCount; ++i) {
      vectors[k][i] = static_cast<std::int32_t>(i * (k + 1));
    }
  }
  run_ranks(3, "auto", [&](Communicator& comm) {
    std::vector<std::int32_t> sums(kCount);
    all_reduce_addends(comm, dealt_to(comm.rank(), {2, 0, 3}, vectors), sums, ops::sum);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(sums[i], static_cast<std::int32_t>(i * 15)) << i;
    }
  });
}

TEST(Addends, AveragesDivideByTheirNumberAndMayOverwriteOne) {
  run_ranks(2, "auto", [](Communicator& comm) {
    std::vector<float> first{3, 8}, second{5, 4};
    std::vector<std::span<float>> addends{first};
    if (comm.rank() == 1) addends.emplace_back(second);
    all_reduce_addends(comm, addends, first, ops::average);
    EXPECT_EQ(first, (std::vector<float>{11.0F / 3, 20.0F / 3}));
  });
}

TEST(Addends, OperatorsThatDoNotCommuteGetThemInTheirSequence) {
  const auto take_right = [](const void*, void*, std::size_t, DataType, void*) {};
  run_ranks(2, "auto", [&](Communicator& comm) {
    const std::vector<std::vector<std::int64_t>> vectors{{1}, {2}, {3}};
    std::vector<std::int64_t> last(1);
    all_reduce_addends(comm, dealt_to(comm.rank(), {1, 2}, vectors), last,
                       ops::user_op("right", take_right, nullptr, false));
    EXPECT_EQ(last[0], 3);
  });
}

// Calls `make` on both ranks: rank 1's is wrong.
template <typename Make>
void expect_refused(ErrorCode code, const std::string& text, const Make& make) {
  run_ranks(2, "auto", [&](Communicator& comm) {
    try {
      make(comm);
      ADD_FAILURE() << "it went through";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(error.rank(), 1) << error.what();
      if (comm.rank() == 1) {
        EXPECT_THAT(error.what(), HasSubstr(text));
      }
    }
    std::vector<float> sums(1);  // the communicator is as before
    all_reduce_addends(comm, Vectors{{1}}, sums, ops::sum);
    EXPECT_EQ(sums[0], 2);
  });
}

TEST(Addends, AWrongCallOfOneRankIsAnErrorOnAll) {
  std::vector<float> data(4);
  expect_refused(ErrorCode::kInvalidArgument, "2 elements and out has 4", [](Communicator& comm) {
    std::vector<float> out(4);
    all_reduce_addends(comm, Vectors{std::vector<float>(comm.rank() == 1 ? 2 : 4)}, out, ops::sum);
  });
  expect_refused(ErrorCode::kInvalidArgument, "null", [](Communicator& comm) {
    std::vector<float> out(4);
    const void* const addends[]{comm.rank() == 1 ? nullptr : out.data()};
    all_reduce_addends(comm, addends, out.data(), 4, DataType::kFloat32, ops::sum);
  });
  expect_refused(ErrorCode::kMismatch, "the same number on all ranks", [](Communicator& comm) {
    std::vector<float> out(comm.rank() == 1 ? 3 : 4);
    all_reduce_addends(comm, Vectors{out}, out, ops::sum);
  });
}

TEST(Addends, OperatorsAndOverlapsThatDifferAreErrors) {
  const auto add = [](const void* in, void* inout, std::size_t, DataType, void*) {
    *static_cast<float*>(inout) += *static_cast<const float*>(in);
  };
  expect_refused(ErrorCode::kMismatch, "another type, operator or order", [&](Communicator& comm) {
    std::vector<float> out(1);
    all_reduce_addends(comm, Vectors{{1}}, out,
                       ops::user_op(comm.rank() == 1 ? "one" : "other", add));
  });
  expect_refused(ErrorCode::kInvalidArgument, "overlaps", [](Communicator& comm) {
    std::vector<float> data(5);
    const std::vector<std::span<float>> addends{std::span(data).subspan(comm.rank(), 4)};
    all_reduce_addends(comm, addends, std::span(data).first(4), ops::sum);
  });
}

TEST(Addends, OfHalvesAreExactToo) {
  const std::vector<std::vector<Float16>> vectors{
      {from_float<Float16>(2048)}, {from_float<Float16>(0.5F)}, {from_float<Float16>(0.75F)}};
  run_ranks(2, "auto", [&](Communicator& comm) {
    std::vector<Float16> sum(1);
    all_reduce_addends(comm, dealt_to(comm.rank(), {1, 2}, vectors), sum, ops::sum,
                       {.order = Order::kExact});
    EXPECT_EQ(to_float(sum[0]), 2050);  // in steps of two: the sum is nearer to 2050 than to 2048
  });
}

TEST(Addends, AtLeastOneIsNeeded) {
  run_ranks(2, "auto", [](Communicator& comm) {
    std::vector<float> out(4);
    try {
      all_reduce_addends(comm, Vectors{}, out, ops::sum);
      ADD_FAILURE() << "nothing was reduced";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("accepted are 1 to"));
    }
  });
}

}  // namespace
}  // namespace unisono::test
