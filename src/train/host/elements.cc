// Element by element: sums, activations, dropout, 16-bit formats.
#include <algorithm>
#include <cstring>

#include "train/host/host_backend.h"
#include "train/model/random.h"
#include "train/model/vector_math.h"
#include "unisono/float_types.h"

namespace unisono::train {
namespace {

constexpr float kRoot2OverPi = 0.7978845608028654F;
constexpr float kCubic = 0.044715F;

template <typename T>
void narrow_to(const float* from, std::size_t count, float factor, void* to) {
  T* const target = static_cast<T*>(to);
  for (std::size_t i = 0; i < count; ++i) target[i] = from_float<T>(from[i] * factor);
}

template <typename T>
void widen_from(const void* from, std::size_t count, float* to) {
  const T* const source = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) to[i] = to_float(source[i]);
}

}  // namespace

void HostBackend::fill(float* to, std::size_t count, float value) { std::fill_n(to, count, value); }

void HostBackend::add(const float* values, std::size_t count, float* sum) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
}

void HostBackend::add_products(const float* left, const float* right, std::size_t count,
                               float* sum) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += left[i] * right[i];
}

void HostBackend::scale(const float* from, std::size_t count, float factor, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

void HostBackend::mix(float keep, float rest, const float* values, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = keep * to[i] + rest * values[i];
}

void HostBackend::narrow(const float* from, std::size_t count, float factor, DataType type,
                         void* to) {
  if (type == DataType::kFloat16) return narrow_to<Float16>(from, count, factor, to);
  narrow_to<Bfloat16>(from, count, factor, to);
}

void HostBackend::widen(const void* from, DataType type, std::size_t count, float* to) {
  if (type == DataType::kFloat16) return widen_from<Float16>(from, count, to);
  widen_from<Bfloat16>(from, count, to);
}

void HostBackend::relu(const float* x, std::size_t count, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}

void HostBackend::relu_gradient(const float* x, const float* dy, std::size_t count, float* dx) {
  for (std::size_t i = 0; i < count; ++i) {
    const float slope = dy[i];  // read either way, or the loop would not vectorise
    dx[i] = x[i] > 0 ? slope : 0;
  }
}

void HostBackend::gelu(const float* x, std::size_t count, float* y) {
  for (std::size_t i = 0; i < count; ++i) {
    y[i] = 0.5F * x[i] * (1 + vector_tanh(kRoot2OverPi * (x[i] + kCubic * x[i] * x[i] * x[i])));
  }
}

void HostBackend::gelu_gradient(const float* x, const float* dy, std::size_t count, float* dx) {
  for (std::size_t i = 0; i < count; ++i) {
    const float square = x[i] * x[i];
    const float t = vector_tanh(kRoot2OverPi * (x[i] + kCubic * square * x[i]));
    const float inner = kRoot2OverPi * (1 + 3 * kCubic * square);
    dx[i] = dy[i] * 0.5F * ((1 + t) + x[i] * (1 - t * t) * inner);
  }
}

void HostBackend::dropout(const float* values, std::size_t count, const DropoutMask& mask,
                          float* to) {
  const float scale = 1 / (1 - mask.probability);
  for (std::size_t i = 0; i < count; ++i) {
    const float drawn = unit_float(mixed(mask.key + i));
    to[i] = drawn < mask.probability ? 0 : values[i] * scale;
  }
}

}  // namespace unisono::train
