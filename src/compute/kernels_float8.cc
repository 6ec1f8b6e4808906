// fp8 in its two OCP forms: widened to fp32, combined there, rounded once to nearest even, overflow
// saturates. Compiled once per instruction set. Thread rule: pure functions.
#include "compute/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/kernels_float8.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "compute/combine_loop-inl.h"
#include "compute/operators-inl.h"
#include "compute/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {

using E4m3 = SmallFloat<std::uint8_t, 4, 3, 0x7e, false>;
using E5m2 = SmallFloat<std::uint8_t, 5, 2, 0x7b, true>;

CombineKernels float8_kernels(DataType type, OpKind op) {
  if (type == DataType::kFloat8E4m3) return small_kernels<E4m3, false>(op);
  if (type == DataType::kFloat8E5m2) return small_kernels<E5m2, false>(op);
  return {};
}

ScaleKernel float8_scale(DataType type, bool divide) {
  if (type == DataType::kFloat8E4m3) return small_scale_of<E4m3>(divide);
  if (type == DataType::kFloat8E5m2) return small_scale_of<E5m2>(divide);
  return nullptr;
}

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::compute {

HWY_EXPORT(float8_kernels);
HWY_EXPORT(float8_scale);

CombineKernels find_float8_kernels(DataType type, OpKind op) {
  return HWY_DYNAMIC_DISPATCH(float8_kernels)(type, op);
}
ScaleKernel find_float8_scale(DataType type, bool divide) {
  return HWY_DYNAMIC_DISPATCH(float8_scale)(type, divide);
}

}  // namespace unisono::compute
#endif
