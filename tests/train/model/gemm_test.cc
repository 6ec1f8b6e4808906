// Every kernel that this CPU can run against sums in double precision.
#include "train/host/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/train/model/layer_bench.h"

namespace unisono::train {
namespace {

struct Case {
  std::size_t rows, columns, inner;
};

/// Kernels differ in their block sizes: below, at and above them, and the models' own extents.
const Case kCases[] = {{1, 1, 1},   {1, 7, 5},      {5, 1, 7},      {3, 3, 0},     {2, 3, 4},
                       {7, 1, 1},   {1, 33, 40},    {33, 1, 40},    {8, 8, 8},     {17, 31, 13},
                       {48, 12, 9}, {64, 128, 64},  {50, 70, 300},  {16, 784, 25}, {129, 65, 33},
                       {10, 4, 17}, {9216, 16, 25}, {128, 256, 784}};

/// A matrix of rows x columns, stored as it is or transposed, in rows `stride` apart.
struct Stored {
  Tensor elements;
  MatrixView view;
  Stored(std::size_t rows, std::size_t columns, bool transposed, std::uint64_t seed) {
    const std::size_t stride = (transposed ? rows : columns) + 3;
    elements = random_tensor({transposed ? columns : rows, stride}, seed);
    view = {elements.data(), stride, transposed};
  }
  double at(std::size_t row, std::size_t column) const {
    if (view.transposed) std::swap(row, column);
    return static_cast<double>(view.data[row * view.stride + column]);
  }
};

void check(const GemmKernel& kernel, const Case& extents, bool left_transposed,
           bool right_transposed, bool accumulate) {
  const auto [rows, columns, inner] = extents;
  const Stored left(rows, inner, left_transposed, 1), right(inner, columns, right_transposed, 2);
  const std::size_t stride = columns + 2;
  const Tensor before = random_tensor({rows, stride}, 3);
  Tensor result = before;
  kernel.multiply({rows, columns, inner, left.view, right.view, result.data(), stride, accumulate});
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < stride; ++c) {
      const double measured = static_cast<double>(result.data()[r * stride + c]);
      double expected = static_cast<double>(before.data()[r * stride + c]);
      if (c >= columns) {
        ASSERT_EQ(measured, expected) << "outside the result";
        continue;
      }
      if (!accumulate) expected = 0;
      for (std::size_t i = 0; i < inner; ++i) expected += left.at(r, i) * right.at(i, c);
      ASSERT_NEAR(measured, expected, 1e-6 * static_cast<double>(inner + 2))
          << kernel.name << " " << rows << "x" << columns << "x" << inner << " at " << r << ", "
          << c << (left_transposed ? ", left transposed" : "")
          << (right_transposed ? ", right transposed" : "");
    }
  }
}

class GemmKernels : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (GetParam() >= gemm_kernels().size()) GTEST_SKIP() << "not on this architecture";
    if (!kernel().supported) GTEST_SKIP() << "this CPU lacks " << kernel().name;
  }
  const GemmKernel& kernel() const { return gemm_kernels()[GetParam()]; }
};

TEST_P(GemmKernels, EqualTheDoublePrecisionProduct) {
  for (const Case& extents : kCases) {
    const bool large = extents.rows * extents.columns * extents.inner > 1000000;
    for (int variant = 0; variant < (large ? 1 : 8); ++variant) {
      check(kernel(), extents, variant & 1, variant & 2, variant & 4);
    }
  }
}

TEST_P(GemmKernels, GiveTheSameBitsWhereverTheMatricesLie) {
  for (const Case& extents : kCases) {
    const auto [rows, columns, inner] = extents;
    const Tensor left = random_tensor({rows, inner}, 4), right = random_tensor({inner, columns}, 5);
    std::vector<float> first;
    for (std::size_t shift = 0; shift < 16; shift += 5) {
      const auto moved = [shift](const Tensor& tensor) {
        Tensor room({tensor.size() + shift + 1});
        std::copy(tensor.values().begin(), tensor.values().end(), room.data() + shift);
        return room;
      };
      const Tensor a = moved(left), b = moved(right);
      Tensor result({rows * columns + shift});
      kernel().multiply({rows,
                         columns,
                         inner,
                         {a.data() + shift, inner},
                         {b.data() + shift, columns},
                         result.data() + shift,
                         columns});
      const std::vector<float> values(result.data() + shift, result.data() + result.size());
      if (shift == 0) first = values;
      EXPECT_EQ(first, values) << rows << "x" << columns << "x" << inner << " moved by " << shift;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmKernels, ::testing::Values(0, 1, 2));

TEST(Gemm, UsesTheWidestKernelThatTheCpuSupports) {
  const GemmKernel* widest = nullptr;
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (kernel.supported) widest = &kernel;
  }
  ASSERT_NE(widest, nullptr);
  const Tensor left = random_tensor({20, 300}, 6), right = random_tensor({300, 20}, 7);
  Tensor chosen({20, 20}), expected({20, 20});
  multiply({20, 20, 300, {left.data(), 300}, {right.data(), 20}, chosen.data(), 20});
  widest->multiply({20, 20, 300, {left.data(), 300}, {right.data(), 20}, expected.data(), 20});
  EXPECT_TRUE(std::equal(chosen.values().begin(), chosen.values().end(), expected.data()));
}

}  // namespace
}  // namespace unisono::train
