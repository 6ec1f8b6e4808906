// fp16 and bf16: widened to fp32, combined there, rounded once to nearest even. Compiled once per
// instruction set. Thread rule: pure functions.
#include "compute/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/kernels_half.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "compute/combine_loop-inl.h"
#include "compute/operators-inl.h"
#include "compute/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {

/// bf16 is the upper half of an fp32. The even and odd elements of a vector are widened where they
/// lie, by shift and mask, so nothing has to cross lanes. NaN needs no care: the lower half of a
/// result that is NaN is zero, as in its operands, so rounding cannot carry into the upper half.
struct Bfloat {
  using Stored = std::uint16_t;
  using Tag = hn::ScalableTag<Stored>;
  template <class Op, class V>
  static HWY_INLINE V combine(const Op& op, V left, V right) {
    const hn::RepartitionToWide<Tag> du;
    const hn::RebindToFloat<decltype(du)> d;
    const auto l = hn::BitCast(du, left);
    const auto r = hn::BitCast(du, right);
    const auto upper = hn::Set(du, 0xffff0000u);
    const auto even =
        op(d, hn::BitCast(d, hn::ShiftLeft<16>(l)), hn::BitCast(d, hn::ShiftLeft<16>(r)));
    const auto odd = op(d, hn::BitCast(d, hn::And(l, upper)), hn::BitCast(d, hn::And(r, upper)));
    return hn::OddEven(
        hn::BitCast(Tag(), rounded_to_upper_half(du, hn::BitCast(du, odd))),
        hn::BitCast(Tag(), hn::ShiftRight<16>(rounded_to_upper_half(du, hn::BitCast(du, even)))));
  }
};

CombineKernels half_kernels(DataType type, OpKind op) {
  if (type == DataType::kFloat16) return small_kernels<Half, true>(op);
  if (type == DataType::kBfloat16) return small_kernels<Bfloat, true>(op);
  return {};
}

ScaleKernel half_scale(DataType type, bool divide) {
  if (type == DataType::kFloat16) return small_scale_of<Half>(divide);
  if (type == DataType::kBfloat16) return small_scale_of<Bfloat>(divide);
  return nullptr;
}

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::compute {

HWY_EXPORT(half_kernels);
HWY_EXPORT(half_scale);

CombineKernels find_half_kernels(DataType type, OpKind op) {
  return HWY_DYNAMIC_DISPATCH(half_kernels)(type, op);
}
ScaleKernel find_half_scale(DataType type, bool divide) {
  return HWY_DYNAMIC_DISPATCH(half_scale)(type, divide);
}

}  // namespace unisono::compute
#endif
