// Kernels whose item is one element and depends on the same element of the inputs alone. See
// item.h; formulas are those of backend.h.
#pragma once

#include <cmath>

#include "train/cuda/kernels/item.h"
#include "train/model/backend.h"
#include "train/model/random.h"
#include "train/model/vector_math.h"
#include "unisono/float_types.h"

namespace unisono::train::kernels {

struct Fill {
  std::uint64_t items;
  float value;
  float* to;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const { to[i] = value; }
  template <class Visit>
  void buffers(Visit visit) {
    visit(to, items);
  }
};

struct Add {
  std::uint64_t items;
  const float* values;
  float* sum;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const { sum[i] += values[i]; }
  template <class Visit>
  void buffers(Visit visit) {
    visit(values, items);
    visit(sum, items);
  }
};

struct AddProducts {
  std::uint64_t items;
  const float *left, *right;
  float* sum;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const { sum[i] += left[i] * right[i]; }
  template <class Visit>
  void buffers(Visit visit) {
    visit(left, items);
    visit(right, items);
    visit(sum, items);
  }
};

struct Scale {
  std::uint64_t items;
  const float* from;
  float factor;
  float* to;  ///< may be `from`
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const { to[i] = from[i] * factor; }
  template <class Visit>
  void buffers(Visit visit) {
    visit(from, items);
    visit(to, items);
  }
};

struct Mix {
  std::uint64_t items;
  float keep, rest;
  const float* values;
  float* to;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    to[i] = keep * to[i] + rest * values[i];
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(values, items);
    visit(to, items);
  }
};

/// `T` is Float16 or Bfloat16.
template <class T>
struct Narrow {
  std::uint64_t items;
  const float* from;
  float factor;
  T* to;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    to[i] = from_float<T>(from[i] * factor);
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(from, items);
    visit(to, items);
  }
};

template <class T>
struct Widen {
  std::uint64_t items;
  const T* from;
  float* to;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const { to[i] = to_float(from[i]); }
  template <class Visit>
  void buffers(Visit visit) {
    visit(from, items);
    visit(to, items);
  }
};

struct Relu {
  std::uint64_t items;
  const float* x;
  float* y;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const { y[i] = x[i] > 0 ? x[i] : 0; }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items);
    visit(y, items);
  }
};

struct ReluGradient {
  std::uint64_t items;
  const float *x, *dy;
  float* dx;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const { dx[i] = x[i] > 0 ? dy[i] : 0; }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items);
    visit(dy, items);
    visit(dx, items);
  }
};

inline constexpr float kRoot2OverPi = 0.7978845608028654F;
inline constexpr float kCubic = 0.044715F;

struct Gelu {
  std::uint64_t items;
  const float* x;
  float* y;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float v = x[i];
    y[i] = 0.5F * v * (1 + vector_tanh(kRoot2OverPi * (v + kCubic * v * v * v)));
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items);
    visit(y, items);
  }
};

struct GeluGradient {
  std::uint64_t items;
  const float *x, *dy;
  float* dx;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float v = x[i], square = v * v;
    const float t = vector_tanh(kRoot2OverPi * (v + kCubic * square * v));
    const float inner = kRoot2OverPi * (1 + 3 * kCubic * square);
    dx[i] = dy[i] * 0.5F * ((1 + t) + v * (1 - t * t) * inner);
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(x, items);
    visit(dy, items);
    visit(dx, items);
  }
};

struct Dropout {
  std::uint64_t items;
  const float* values;
  DropoutMask mask;
  float* to;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float scale = 1 / (1 - mask.probability);
    to[i] = unit_float(mixed(mask.key + i)) < mask.probability ? 0 : values[i] * scale;
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(values, items);
    visit(to, items);
  }
};

struct SgdPlain {
  std::uint64_t items;
  SgdStep step;
  const float* gradients;
  float* parameters;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    parameters[i] -= step.rate * (gradients[i] + step.decay * parameters[i]);
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(gradients, items);
    visit(parameters, items);
  }
};

struct SgdMomentum {
  std::uint64_t items;
  SgdStep step;
  const float* gradients;
  float *velocity, *parameters;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float slope = gradients[i] + step.decay * parameters[i];
    const float moved = step.momentum * velocity[i] + slope;
    velocity[i] = moved;
    parameters[i] -= step.rate * (step.nesterov ? slope + step.momentum * moved : moved);
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(gradients, items);
    visit(velocity, items);
    visit(parameters, items);
  }
};

struct AdamW {
  std::uint64_t items;
  AdamWStep step;
  const float* gradients;
  float *first, *second, *parameters;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float g = gradients[i];
    const float m = step.beta1 * first[i] + step.rest1 * g;
    const float v = step.beta2 * second[i] + step.rest2 * g * g;
    first[i] = m;
    second[i] = v;
    parameters[i] =
        parameters[i] * step.kept - step.rate * m / (std::sqrt(v) * step.root + step.epsilon);
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(gradients, items);
    visit(first, items);
    visit(second, items);
    visit(parameters, items);
  }
};

/// An item is an element of `to`, [rows, width].
struct RepeatRow {
  std::uint64_t items, width;
  const float* row;
  float* to;
  UNISONO_HOST_DEVICE void operator()(std::uint64_t i) const {
    to[i] = row[split(i, width).remainder];
  }
  template <class Visit>
  void buffers(Visit visit) {
    visit(row, width);
    visit(to, items);
  }
};

}  // namespace unisono::train::kernels
