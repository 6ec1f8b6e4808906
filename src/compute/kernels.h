// The kernels behind Reduction: which exist, and how one is found for the processor at hand.
// Private to src/compute. Thread rule: pure functions, usable from any thread.
// Each kernels_*.cc is compiled once per instruction set (Google Highway, foreach_target); the
// find_ functions below return pointers into the variant that fits this processor.
#pragma once

#include <array>
#include <bit>
#include <cstddef>

#include "compute/compute.h"
#include "unisono/types.h"

namespace unisono::compute {

/// Bytes from which copy() uses non-temporal stores (README.md has the measurement).
inline constexpr std::size_t kStreamBytes = std::size_t{8} << 20;

/// Non-temporal stores go out in whole lines of this size; streaming kernels align `out` to it.
inline constexpr std::size_t kLineBytes = 64;

/// `streaming` gives the same result with non-temporal stores where `out` allows it, and leaves
/// the store fence to its caller. Where no such kernel exists it is `plain` again.
struct CombineKernels {
  CombineKernel plain = nullptr;
  CombineKernel streaming = nullptr;
};

/// Where the canonical tree T(lo, hi) splits: lo + the largest power of two below hi - lo, which is
/// at least 2.
constexpr int split(int lo, int hi) {
  return lo + static_cast<int>(std::bit_floor(static_cast<unsigned>(hi - lo - 1)));
}

/// out = the canonical tree over as many inputs as the kernel is for; node values stay in
/// registers.
using FusedKernel = void (*)(void* out, const void* const* inputs, std::size_t count);
/// Indexed by the number of inputs less kFusedRanksMin.
inline constexpr int kFusedRanksMin = 3;
inline constexpr int kFusedRanksMax = 8;
using FusedKernels = std::array<FusedKernel, kFusedRanksMax - kFusedRanksMin + 1>;

/// out[i] = in[i] * scalar, or in[i] / scalar: computed and rounded as types.h says.
using ScaleKernel = void (*)(void* out, const void* in, std::size_t count, double scalar);

/// One file each. Null where the file does not know the pair of type and operator. kAverage and
/// kPremultipliedSum are not asked for: their combination is kSum.
CombineKernels find_float_kernels(DataType type, OpKind op);    // fp32, fp64, complex
CombineKernels find_half_kernels(DataType type, OpKind op);     // fp16, bf16
CombineKernels find_float8_kernels(DataType type, OpKind op);   // e4m3, e5m2
CombineKernels find_integer_kernels(DataType type, OpKind op);  // sum, product, min, max
CombineKernels find_bit_kernels(DataType type, OpKind op);      // bitwise, logical, bool

ScaleKernel find_float_scale(DataType type, bool divide);
ScaleKernel find_half_scale(DataType type, bool divide);
ScaleKernel find_float8_scale(DataType type, bool divide);
ScaleKernel find_integer_scale(DataType type, bool divide);

/// Of sums; null for types without exact ones.
ExactKernel find_exact_kernel(DataType type);  // fp32, fp16, bf16

/// All null unless fusing was measured to pay for this pair. Takes every kind of operator.
FusedKernels find_fused_kernels(DataType type, OpKind op);

/// out[i] = in[i] is not zero, as the element type's 1 or 0.
using NormalizeKernel = void (*)(void* out, const void* in, std::size_t count);
NormalizeKernel find_normalize(DataType type);

/// False where none of the compiled instruction sets fits: then no kernel may be asked for.
bool processor_supported();

/// Copies with non-temporal stores; no fence.
void stream_bytes(void* out, const void* in, std::size_t bytes);
/// Orders earlier non-temporal stores before later ordinary ones.
void store_fence();

}  // namespace unisono::compute
