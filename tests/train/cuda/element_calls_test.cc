// Calls that compute element by element, against the formulas of backend.h in double.
#include <cmath>
#include <numbers>

#include "tests/train/cuda/fixture.h"
#include "train/model/random.h"
#include "unisono/float_types.h"

namespace unisono::test {
namespace {

/// Counts that divide by nothing, none, and more than one block.
class ElementCalls : public testing::TestWithParam<std::size_t> {
 protected:
  ElementCalls()
      : count(GetParam()),
        a(random_values(count, 1)),
        b(random_values(count, 2)),
        c(random_values(count, 3)),
        x(*backend, a),
        y(*backend, b) {
    for (float& value : a) value *= 3;
    backend->write(a.data(), count, x);
  }

  /// expected(i) of each element.
  template <typename Expected>
  void expect(const Floats& values, Expected expected, double tolerance = 1e-6) {
    Doubles all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(expected(i));
    expect_near(values, all, tolerance);
  }
  double at(const Floats& values, std::size_t i) const { return static_cast<double>(values[i]); }

  const std::size_t count;
  const std::shared_ptr<train::Backend> backend = make_backend();
  Floats a, b, c;
  const DeviceFloats x, y;  ///< a and b
};

TEST_P(ElementCalls, FillAndCopy) {
  expect(
      computed(*backend, unwritten(count), [&](float* to) { backend->fill(to, count, 2.5F); }),
      [](std::size_t) { return 2.5; }, 0);
  expect(
      computed(*backend, unwritten(count), [&](float* to) { backend->copy(x, count, to); }),
      [&](std::size_t i) { return at(a, i); }, 0);
}

TEST_P(ElementCalls, Sums) {
  expect(computed(*backend, c, [&](float* to) { backend->add(x, count, to); }),
         [&](std::size_t i) { return at(c, i) + at(a, i); });
  expect(computed(*backend, c, [&](float* to) { backend->add_products(x, y, count, to); }),
         [&](std::size_t i) { return at(c, i) + at(a, i) * at(b, i); });
  expect(computed(*backend, c, [&](float* to) { backend->mix(0.9F, 0.1F, x, count, to); }),
         [&](std::size_t i) { return 0.9 * at(c, i) + 0.1 * at(a, i); });
}

TEST_P(ElementCalls, ScaleElsewhereAndInPlace) {
  expect(
      computed(*backend, unwritten(count), [&](float* to) { backend->scale(x, count, -2, to); }),
      [&](std::size_t i) { return -2 * at(a, i); }, 0);
  expect(
      computed(*backend, c, [&](float* to) { backend->scale(to, count, 0.5F, to); }),
      [&](std::size_t i) { return 0.5 * at(c, i); }, 0);
}

TEST_P(ElementCalls, NarrowAndWidenRoundAsTheRuntimeDoes) {
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    const auto there_and_back = [&](float* to) {
      void* narrow = backend->take(count * 2);
      backend->narrow(x, count, 4, type, narrow);
      backend->widen(narrow, type, count, to);
      backend->give(narrow, count * 2);
    };
    expect(
        computed(*backend, unwritten(count), there_and_back),
        [&](std::size_t i) {
          const float scaled = a[i] * 4;
          return static_cast<double>(type == DataType::kFloat16 ? to_float(to_float16(scaled))
                                                                : to_float(to_bfloat16(scaled)));
        },
        0);
  }
}

TEST_P(ElementCalls, Relu) {
  expect(
      computed(*backend, unwritten(count), [&](float* to) { backend->relu(x, count, to); }),
      [&](std::size_t i) { return std::max(at(a, i), 0.0); }, 0);
  expect(
      computed(*backend, unwritten(count),
               [&](float* to) { backend->relu_gradient(x, y, count, to); }),
      [&](std::size_t i) { return at(a, i) > 0 ? at(b, i) : 0; }, 0);
}

TEST_P(ElementCalls, Gelu) {
  const double root = std::sqrt(2 / std::numbers::pi), cubic = 0.044715;
  const auto tanh_of = [&](double v) { return std::tanh(root * (v + cubic * v * v * v)); };
  expect(computed(*backend, unwritten(count), [&](float* to) { backend->gelu(x, count, to); }),
         [&](std::size_t i) { return 0.5 * at(a, i) * (1 + tanh_of(at(a, i))); });
  expect(
      computed(*backend, unwritten(count),
               [&](float* to) { backend->gelu_gradient(x, y, count, to); }),
      [&](std::size_t i) {
        const double v = at(a, i), t = tanh_of(v);
        const double inner = root * (1 + 3 * cubic * v * v);
        return at(b, i) * 0.5 * ((1 + t) + v * (1 - t * t) * inner);
      },
      2e-6);
}

TEST_P(ElementCalls, DropoutDropsWhatTheKeySays) {
  const train::DropoutMask mask{.key = 0x123456789abcdef0, .probability = 0.3F};
  expect(computed(*backend, unwritten(count),
                  [&](float* to) { backend->dropout(x, count, mask, to); }),
         [&](std::size_t i) {
           const bool dropped = train::unit_float(train::mixed(mask.key + i)) < mask.probability;
           return dropped ? 0 : at(a, i) / (1 - 0.3);
         });
}

TEST_P(ElementCalls, SgdInItsThreeForms) {
  const auto slope = [&](std::size_t i) { return at(a, i) + 0.01 * at(c, i); };
  expect(computed(*backend, c,
                  [&](float* to) {
                    backend->sgd({.rate = 0.1F, .momentum = 0, .decay = 0.01F, .nesterov = false},
                                 x, count, nullptr, to);
                  }),
         [&](std::size_t i) { return at(c, i) - 0.1 * slope(i); });
  for (const bool nesterov : {false, true}) {
    const train::SgdStep step{.rate = 0.1F, .momentum = 0.9F, .decay = 0.01F, .nesterov = nesterov};
    const Floats both = computed(*backend, joined(c, b),
                                 [&](float* to) { backend->sgd(step, x, count, to + count, to); });
    Doubles expected, velocity;
    for (std::size_t i = 0; i < count; ++i) {
      velocity.push_back(0.9 * at(b, i) + slope(i));
      expected.push_back(at(c, i) -
                         0.1 * (nesterov ? slope(i) + 0.9 * velocity.back() : velocity.back()));
    }
    expect_near(both, joined(expected, velocity), 1e-6);
  }
}

TEST_P(ElementCalls, AdamW) {
  const train::AdamWStep step{.beta1 = 0.9F,
                              .rest1 = 0.1F,
                              .beta2 = 0.999F,
                              .rest2 = 0.001F,
                              .epsilon = 1e-8F,
                              .kept = 0.99F,
                              .rate = 0.01F,
                              .root = 3};
  Floats squares = b;
  for (float& value : squares) value *= value;
  const Floats all = computed(*backend, joined(joined(c, b), squares), [&](float* to) {
    backend->adamw(step, x, count, to + count, to + 2 * count, to);
  });
  Doubles parameters, first, second;
  for (std::size_t i = 0; i < count; ++i) {
    first.push_back(0.9 * at(b, i) + 0.1 * at(a, i));
    second.push_back(0.999 * at(squares, i) + 0.001 * at(a, i) * at(a, i));
    parameters.push_back(0.99 * at(c, i) -
                         0.01 * first.back() / (3 * std::sqrt(second.back()) + 1e-8));
  }
  expect_near(all, joined(joined(parameters, first), second), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Counts, ElementCalls, testing::Values(0, 1, 7, 33, 1000),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace unisono::test
