// fp32, fp64 and the complex types, which are pairs of them. Compiled once per instruction set.
// Thread rule: pure functions.
#include "compute/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/kernels_float.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#include "compute/combine_loop-inl.h"
#include "compute/operators-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {

template <typename T>
CombineKernels real_kernels(OpKind op) {
  switch (op) {
    case OpKind::kSum:
      return with_streaming<Plain<T>, Sum>();
    case OpKind::kProduct:
      return without_streaming<Plain<T>, Product>();
    case OpKind::kMin:
      return without_streaming<Plain<T>, Min>();
    case OpKind::kMax:
      return without_streaming<Plain<T>, Max>();
    default:
      return {};
  }
}

template <typename T>
CombineKernels complex_kernels(OpKind op) {
  switch (op) {
    case OpKind::kSum:
      return with_streaming<Plain<T>, Sum, 2>();
    case OpKind::kProduct:
      return without_streaming<Plain<T>, ComplexProduct, 2>();
    default:
      return {};
  }
}

CombineKernels float_kernels(DataType type, OpKind op) {
  switch (type) {
    case DataType::kFloat32:
      return real_kernels<float>(op);
    case DataType::kFloat64:
      return real_kernels<double>(op);
    case DataType::kComplex64:
      return complex_kernels<float>(op);
    case DataType::kComplex128:
      return complex_kernels<double>(op);
    default:
      return {};
  }
}

template <typename T, template <typename> class Op, std::size_t kWidth>
void scale_kernel(void* out, const void* in, std::size_t count, double scalar) {
  const Op<T> op{static_cast<T>(scalar)};
  combine_from<Plain<T>>(op, out, in, in, 0, count * kWidth);
}

template <template <typename> class Op>
ScaleKernel scale_of(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return scale_kernel<float, Op, 1>;
    case DataType::kFloat64:
      return scale_kernel<double, Op, 1>;
    case DataType::kComplex64:
      return scale_kernel<float, Op, 2>;
    case DataType::kComplex128:
      return scale_kernel<double, Op, 2>;
    default:
      return nullptr;
  }
}

ScaleKernel float_scale(DataType type, bool divide) {
  return divide ? scale_of<Divide>(type) : scale_of<Scale>(type);
}

/// One vector of input `k`, or the last `rest` lanes of it.
template <bool kWhole, class D>
HWY_INLINE hn::Vec<D> load_input(D d, const void* const* inputs, int k, std::size_t i,
                                 std::size_t rest) {
  const float* const from = element<float>(inputs[k], i);
  if constexpr (kWhole) {
    return hn::LoadU(d, from);
  } else {
    return load_part(d, from, rest);
  }
}

/// T(kLow, kHigh) over the inputs, in registers.
template <int kLow, int kHigh, bool kWhole, class D>
HWY_INLINE hn::Vec<D> sum_in_tree(D d, const void* const* inputs, std::size_t i, std::size_t rest) {
  if constexpr (kHigh - kLow == 1) {
    return load_input<kWhole>(d, inputs, kLow, i, rest);
  } else {
    constexpr int kMiddle = split(kLow, kHigh);
    return hn::Add(sum_in_tree<kLow, kMiddle, kWhole>(d, inputs, i, rest),
                   sum_in_tree<kMiddle, kHigh, kWhole>(d, inputs, i, rest));
  }
}

template <int kRanks>
void fused_sum(void* out, const void* const* inputs, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const void* local[kRanks];  // which no store through `out` can change: stays in registers
  std::copy_n(inputs, kRanks, local);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(sum_in_tree<0, kRanks, true>(d, local, i, lanes), d, element<float>(out, i));
  }
  if (const std::size_t rest = count - i; rest != 0) {
    const auto value = sum_in_tree<0, kRanks, false>(d, local, i, rest);
    store_part(value, d, element<float>(out, i), rest);
  }
}

FusedKernels fused_kernels(DataType type, OpKind op) {
  const bool sums = op == OpKind::kSum || op == OpKind::kAverage || op == OpKind::kPremultipliedSum;
  if (type != DataType::kFloat32 || !sums) return {};
  return {fused_sum<3>, fused_sum<4>, fused_sum<5>, fused_sum<6>, fused_sum<7>, fused_sum<8>};
}

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::compute {

HWY_EXPORT(float_kernels);
HWY_EXPORT(float_scale);
HWY_EXPORT(fused_kernels);

CombineKernels find_float_kernels(DataType type, OpKind op) {
  return HWY_DYNAMIC_DISPATCH(float_kernels)(type, op);
}
ScaleKernel find_float_scale(DataType type, bool divide) {
  return HWY_DYNAMIC_DISPATCH(float_scale)(type, divide);
}
FusedKernels find_fused_kernels(DataType type, OpKind op) {
  return HWY_DYNAMIC_DISPATCH(fused_kernels)(type, op);
}

}  // namespace unisono::compute
#endif
