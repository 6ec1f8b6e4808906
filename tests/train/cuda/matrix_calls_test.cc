// Matrices and attention, against plain loops in double.
#include <cmath>

#include "tests/train/cuda/fixture.h"

namespace unisono::test {
namespace {

using train::Attention;
using train::Product;

class MatrixCalls : public testing::Test {
 protected:
  const std::shared_ptr<train::Backend> backend = make_backend();
};

struct Extents {
  std::size_t rows, columns, inner;
};

/// Both operands either way round, in larger matrices, with and without adding.
void check_product(train::Backend& backend, const Extents& extents, bool left_turned,
                   bool right_turned, bool accumulate) {
  const auto [rows, columns, inner] = extents;
  const std::size_t left_stride = (left_turned ? rows : inner) + 3;
  const std::size_t right_stride = (right_turned ? inner : columns) + 2;
  const std::size_t result_stride = columns + 5;
  const Floats left = random_values((left_turned ? inner : rows) * left_stride, 1);
  const Floats right = random_values((right_turned ? columns : inner) * right_stride, 2);
  const Floats before = random_values(rows * result_stride, 3);
  const DeviceFloats a(backend, left), b(backend, right);
  const Floats result = computed(backend, before, [&](float* to) {
    backend.multiply({extents.rows,
                      extents.columns,
                      extents.inner,
                      {a, left_stride, left_turned},
                      {b, right_stride, right_turned},
                      to,
                      result_stride,
                      accumulate});
  });
  Doubles expected = widened(before);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = accumulate ? expected[r * result_stride + c] : 0;
      for (std::size_t i = 0; i < inner; ++i) {
        sum +=
            static_cast<double>(left[left_turned ? i * left_stride + r : r * left_stride + i]) *
            static_cast<double>(right[right_turned ? c * right_stride + i : i * right_stride + c]);
      }
      expected[r * result_stride + c] = sum;
    }
  }
  expect_near(result, expected, 1e-5);  // what lies between the rows is as before
}

TEST_F(MatrixCalls, ProductsOfEveryShape) {
  for (const Extents& extents :
       {Extents{1, 1, 1}, Extents{7, 31, 33}, Extents{33, 1, 7}, Extents{1, 33, 31},
        Extents{5, 3, 0}, Extents{0, 4, 3}, Extents{4, 0, 3}}) {
    for (int turns = 0; turns < 8; ++turns) {
      SCOPED_TRACE(testing::Message() << extents.rows << " x " << extents.columns << " x "
                                      << extents.inner << ", " << turns);
      check_product(*backend, extents, (turns & 1) != 0, (turns & 2) != 0, (turns & 4) != 0);
    }
  }
}

TEST_F(MatrixCalls, AResultThatIsNotAddedToIsNotRead) {
  const DeviceFloats a(*backend, {1, 2}), b(*backend, {3, 4});
  EXPECT_EQ(computed(*backend, unwritten(1),
                     [&](float* to) {
                       backend->multiply({1, 1, 2, {a, 2}, {b, 1}, to, 1});
                     }),
            Floats{11});
}

TEST_F(MatrixCalls, RowsAndColumns) {
  for (const std::size_t rows : {0, 1, 7, 33, 1000}) {
    for (const std::size_t width : {1, 7, 31}) {
      const Floats row = random_values(width, 1), values = random_values(rows * width, 2);
      const Floats before = random_values(width, 3);
      const DeviceFloats on_device(*backend, row), matrix(*backend, values);
      Doubles repeated, sums = widened(before);
      for (std::size_t i = 0; i < rows * width; ++i) {
        repeated.push_back(static_cast<double>(row[i % width]));
        sums[i % width] += static_cast<double>(values[i]);
      }
      expect_near(computed(*backend, unwritten(rows * width),
                           [&](float* to) { backend->repeat_row(on_device, rows, width, to); }),
                  repeated, 0);
      expect_near(computed(*backend, before,
                           [&](float* to) { backend->add_column_sums(matrix, rows, width, to); }),
                  sums, 1e-6);
    }
  }
}

/// Element by element, one head of one sample at a time.
struct AttentionOracle {
  AttentionOracle(const Attention& of_shape, const Floats& inputs)
      : shape(of_shape),
        x(inputs),
        weights(shape.weights()),
        y(shape.samples * shape.context * shape.features) {
    for_each_head([&](std::size_t sample, std::size_t head, double* weight) {
      for (std::size_t t = 0; t < shape.context; ++t) {
        double* row = weight + t * shape.context;
        double sum = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::size_t i = 0; i < shape.width(); ++i) {
            score += input(sample, t, 0, head, i) * input(sample, s, 1, head, i);
          }
          sum += row[s] = std::exp(score / std::sqrt(static_cast<double>(shape.width())));
        }
        for (std::size_t s = 0; s <= t; ++s) row[s] /= sum;
        for (std::size_t i = 0; i < shape.width(); ++i) {
          double& out = y[output_at(sample, t, head, i)];
          for (std::size_t s = 0; s <= t; ++s) out += row[s] * input(sample, s, 2, head, i);
        }
      }
    });
  }

  Doubles gradient(const Floats& dy) {
    Doubles dx(x.size());
    const double scale = 1 / std::sqrt(static_cast<double>(shape.width()));
    for_each_head([&](std::size_t sample, std::size_t head, const double* weight) {
      for (std::size_t t = 0; t < shape.context; ++t) {
        const double* row = weight + t * shape.context;
        const auto slope = [&](std::size_t i) {
          return static_cast<double>(dy[output_at(sample, t, head, i)]);
        };
        Doubles along(t + 1);  // the gradient of each weight
        double level = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::size_t i = 0; i < shape.width(); ++i) {
            along[s] += slope(i) * input(sample, s, 2, head, i);
            dx[input_at(sample, s, 2, head, i)] += row[s] * slope(i);
          }
          level += along[s] * row[s];
        }
        for (std::size_t s = 0; s <= t; ++s) {
          const double score = row[s] * (along[s] - level) * scale;
          for (std::size_t i = 0; i < shape.width(); ++i) {
            dx[input_at(sample, t, 0, head, i)] += score * input(sample, s, 1, head, i);
            dx[input_at(sample, s, 1, head, i)] += score * input(sample, t, 0, head, i);
          }
        }
      }
    });
    return dx;
  }

  template <typename Visit>
  void for_each_head(Visit visit) {
    for (std::size_t n = 0; n < shape.samples * shape.heads; ++n) {
      visit(n / shape.heads, n % shape.heads, weights.data() + n * shape.context * shape.context);
    }
  }
  /// `part` 0 is the query, 1 the key, 2 the value.
  std::size_t input_at(std::size_t sample, std::size_t t, std::size_t part, std::size_t head,
                       std::size_t i) const {
    return ((sample * shape.context + t) * 3 + part) * shape.features + head * shape.width() + i;
  }
  double input(std::size_t sample, std::size_t t, std::size_t part, std::size_t head,
               std::size_t i) const {
    return static_cast<double>(x[input_at(sample, t, part, head, i)]);
  }
  std::size_t output_at(std::size_t sample, std::size_t t, std::size_t head, std::size_t i) const {
    return (sample * shape.context + t) * shape.features + head * shape.width() + i;
  }

  const Attention shape;
  const Floats x;
  Doubles weights, y;
};

TEST_F(MatrixCalls, Attention) {
  for (const Attention& shape : {Attention{1, 1, 1, 1}, Attention{3, 7, 12, 3},
                                 Attention{2, 31, 10, 2}, Attention{0, 7, 12, 3}}) {
    const std::size_t rows = shape.samples * shape.context;
    Floats x = random_values(rows * 3 * shape.features, 1);
    for (float& value : x) value *= 2;
    const Floats dy = random_values(rows * shape.features, 2);
    AttentionOracle oracle(shape, x);
    const DeviceFloats inputs(*backend, x), slopes(*backend, dy);
    const Floats outputs =
        computed(*backend, unwritten(shape.weights() + rows * shape.features),
                 [&](float* to) { backend->attend(shape, inputs, to, to + shape.weights()); });
    expect_near(outputs, joined(oracle.weights, oracle.y), 1e-5);
    // Without a place for the weights.
    expect_near(computed(*backend, unwritten(rows * shape.features),
                         [&](float* to) { backend->attend(shape, inputs, nullptr, to); }),
                oracle.y, 1e-5);
    const DeviceFloats weights(
        *backend, {outputs.begin(), outputs.begin() + static_cast<long>(shape.weights())});
    expect_near(
        computed(*backend, unwritten(x.size()),
                 [&](float* to) { backend->attend_gradient(shape, inputs, weights, slopes, to); }),
        oracle.gradient(dy), 1e-5);
  }
}

}  // namespace
}  // namespace unisono::test
