// exp and tanh in plain arithmetic, so that loops over them vectorise and give the same bits with
// every C library. Constexpr, so that the kernels of a GPU may call them too.
#pragma once

#include <bit>
#include <cstdint>

namespace unisono::train {

/// Within two units in the last place of exp(x) for |x| < 87; beyond that as at +-87.
constexpr float vector_exp(float x) {
  x = x > 87.0F ? 87.0F : x;
  x = x < -87.0F ? -87.0F : x;
  // x = n log 2 + r with |r| <= log 2 / 2, n by adding and taking away 1.5 * 2^23. log 2 in two
  // parts keeps r exact (Cody and Waite, 1980).
  constexpr float kRounder = 12582912.0F;
  const float shifted = x * 1.44269504088896341F + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  // Cephes' polynomial for exp(r) - 1 - r over r squared.
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float mantissa = p * r * r + r + 1;
  // 2^n: the low bits of `shifted` hold n, moved into the exponent.
  const auto bits = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
  return mantissa * std::bit_cast<float>(bits);
}

/// Within 2e-7 of tanh(x).
constexpr float vector_tanh(float x) { return 1 - 2 / (vector_exp(2 * x) + 1); }

}  // namespace unisono::train
