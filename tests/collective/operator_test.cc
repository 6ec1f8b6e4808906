// User operators that keep rank order, scalars, averages, awkward floats.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"

namespace unisono::test {
namespace {

// x -> a x + b modulo 2^32, packed; composition is associative and not commutative.
struct Affine {
  std::uint32_t a;
  std::uint32_t b;
};

std::uint64_t pack(Affine f) {
  std::uint64_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

Affine then(Affine first, Affine second) {
  return {first.a * second.a, first.b * second.a + second.b};
}

void compose(const void* in, void* inout, std::size_t count, DataType, void* context) {
  auto* calls = static_cast<int*>(context);
  if (calls != nullptr) ++*calls;
  for (std::size_t i = 0; i < count; ++i) {
    Affine lower;
    Affine upper;
    std::memcpy(&lower, static_cast<const std::byte*>(in) + i * sizeof lower, sizeof lower);
    std::memcpy(&upper, static_cast<std::byte*>(inout) + i * sizeof upper, sizeof upper);
    const Affine both = then(lower, upper);
    std::memcpy(static_cast<std::byte*>(inout) + i * sizeof both, &both, sizeof both);
  }
}

Affine leaf(Rank rank, std::size_t i) {
  return {static_cast<std::uint32_t>(2 * rank + 3 + i), static_cast<std::uint32_t>(rank * 7 + i)};
}

std::uint64_t composed(int last, std::size_t i) {
  Affine all = leaf(0, i);
  for (Rank rank = 1; rank < last; ++rank) all = then(all, leaf(rank, i));
  return pack(all);
}

using Job = std::tuple<std::string, int>;

class Operators : public testing::TestWithParam<Job> {
 protected:
  void run(const std::function<void(Communicator&)>& body) const {
    run_ranks(std::get<1>(GetParam()), std::get<0>(GetParam()), body);
  }
};

TEST_P(Operators, NonCommutativeOnesKeepRankOrderInEveryReduction) {
  run([](Communicator& comm) {
    for (const std::size_t count : {1ul, 9ul, 4000ul, 100'001ul}) {
      const auto n = static_cast<std::size_t>(comm.size());
      std::vector<std::uint64_t> in(count * n);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = pack(leaf(comm.rank(), i));
      std::vector<std::uint64_t> out(count);
      int calls = 0;
      const ReduceOp op = ops::user_op("compose", &compose, &calls, false);
      const auto expect = [&](const char* name, int last, std::size_t first) {
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i], composed(last, first + i)) << name << " of " << count << " at " << i;
        }
      };
      comm.all_reduce(in.data(), out.data(), count, DataType::kUint64, op);
      expect("all_reduce", comm.size(), 0);
      comm.reduce(in.data(), out.data(), count, DataType::kUint64, op, comm.size() - 1);
      if (comm.rank() == comm.size() - 1) expect("reduce", comm.size(), 0);
      comm.reduce_scatter(in.data(), out.data(), count, DataType::kUint64, op);
      expect("reduce_scatter", comm.size(), static_cast<std::size_t>(comm.rank()) * count);
      comm.scan(in.data(), out.data(), count, DataType::kUint64, op);
      expect("scan", comm.rank() + 1, 0);
      comm.exscan(in.data(), out.data(), count, DataType::kUint64, op);
      if (comm.rank() > 0) expect("exscan", comm.rank(), 0);
      if (comm.size() == 1) {
        EXPECT_EQ(calls, 0);
      }
    }
  });
}

TEST_P(Operators, ScalarsMayDifferBetweenRanks) {
  run([](Communicator& comm) {
    const double factor = 0.5 * (comm.rank() + 1);
    std::vector<double> data(1000, 8.0);
    comm.all_reduce(data, ops::premultiplied_sum(factor));
    const int n = comm.size();
    EXPECT_EQ(data, std::vector<double>(1000, 2.0 * n * (n + 1)));
  });
}

TEST_P(Operators, AveragesOfIntegersTruncateTowardZero) {
  run([](Communicator& comm) {
    const int n = comm.size();
    std::vector<int> data{comm.rank() == 0 ? n + n - 1 : 0, comm.rank() == 0 ? 1 - n - n : 0, -7};
    comm.all_reduce(data, ops::average);
    EXPECT_EQ(data, (std::vector<int>{(2 * n - 1) / n, -((2 * n - 1) / n), -7}));
  });
}

TEST_P(Operators, NanPropagatesAndMinusZeroIsBelowZero) {
  run([](Communicator& comm) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const bool last = comm.rank() == comm.size() - 1;
    std::vector<float> in(100, comm.rank() == 0 ? 0.0f : 1.0f);
    in[1] = last ? nan : 3.0f;
    in[2] = last ? -0.0f : 0.0f;
    std::vector<float> out(100);
    comm.all_reduce(in, out, ops::min);
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_TRUE(std::signbit(out[2]));
    comm.all_reduce(in, out, ops::max);
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_EQ(std::signbit(out[2]), comm.size() == 1);
  });
}

TEST_P(Operators, EveryRankGetsTheSameBitsAndGetsThemTwice) {
  run([](Communicator& comm) {
    constexpr std::size_t kCount = 50'021;
    std::vector<float> in(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      in[i] = 1.0f / static_cast<float>(i + static_cast<std::size_t>(comm.rank()) * 31 + 1);
    }
    std::vector<float> first(kCount);
    std::vector<float> second(kCount);
    comm.all_reduce(in, first, ops::sum);
    comm.all_reduce(in, second, ops::sum);
    EXPECT_EQ(std::memcmp(first.data(), second.data(), kCount * 4), 0);
    std::vector<float> of_zero = first;
    comm.broadcast(of_zero, 0);
    EXPECT_EQ(std::memcmp(first.data(), of_zero.data(), kCount * 4), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, Operators,
                         testing::Combine(testing::ValuesIn(tested_transports()),
                                          testing::Values(1, 2, 3, 5, 8)),
                         [](const testing::TestParamInfo<Job>& info) {
                           return std::get<0>(info.param) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace unisono::test
