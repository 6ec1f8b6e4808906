// Floating-point formats narrower than fp32, for the instruction set being compiled: widened to
// fp32, by integer arithmetic where no instruction converts them, combined there, rounded once to
// nearest even. The vector form of detail::SmallFloat in unisono/float_types.h. Included by
// kernels_*.cc.

// Highway's per-target include guard.
#if defined(UNISONO_COMPUTE_SMALL_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef UNISONO_COMPUTE_SMALL_FLOAT_INL_H_
#undef UNISONO_COMPUTE_SMALL_FLOAT_INL_H_
#else
#define UNISONO_COMPUTE_SMALL_FLOAT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

#include "compute/combine_loop-inl.h"
#include "compute/operators-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// One sign bit, kExponentBits, kMantissaBits. kLargest is the magnitude that overflow becomes.
/// Comparisons are signed because all magnitudes are positive and x86 has no unsigned ones.
template <typename T, int kExponentBits, int kMantissaBits, int kLargest, bool kHasInfinity>
struct SmallFloat {
  using Stored = T;
  using Wide = hn::ScalableTag<float>;
  using Bits = hn::RebindToSigned<Wide>;
  using Tag = hn::Rebind<T, Wide>;

  template <class Op, class V>
  static HWY_INLINE V combine(const Op& op, V left, V right) {
    return narrow(op(Wide(), widen(left), widen(right)));
  }

  static HWY_INLINE hn::Vec<Wide> widen(hn::Vec<Tag> stored) {
    const Wide d;
    const Bits di;
    const auto code = hn::BitCast(di, hn::PromoteTo(hn::RebindToUnsigned<Wide>(), stored));
    const auto magnitude = hn::And(code, hn::Set(di, kMagnitude));
    const auto sign = hn::ShiftLeft<kSignShift>(hn::Xor(code, magnitude));
    const auto fraction = hn::ShiftLeft<kDropped>(magnitude);
    const auto normal = hn::Add(fraction, hn::Set(di, (127 - kBias) << 23));
    // A subnormal is the fraction behind the smallest normal number's leading one, less that one.
    const auto one = hn::Set(di, (128 - kBias) << 23);
    const auto subnormal = hn::Sub(hn::BitCast(d, hn::Add(fraction, one)), hn::BitCast(d, one));
    auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 1 << kMantissaBits)),
                                hn::BitCast(di, subnormal), normal);
    const auto quiet = hn::Or(fraction, hn::Set(di, 0x7fc00000));
    if constexpr (kHasInfinity) {
      const auto infinity = hn::Set(di, kInfinity);
      value = hn::IfThenElse(hn::Eq(magnitude, infinity), hn::Set(di, 0x7f800000), value);
      value = hn::IfThenElse(hn::Gt(magnitude, infinity), quiet, value);
    } else {
      value =
          hn::IfThenElse(hn::Eq(magnitude, hn::Set(di, kInfinity)), hn::Set(di, 0x7fc00000), value);
    }
    return hn::BitCast(d, hn::Or(value, sign));
  }

  static HWY_INLINE hn::Vec<Tag> narrow(hn::Vec<Wide> value) {
    const Wide d;
    const Bits di;
    const auto bits = hn::BitCast(di, value);
    const auto absolute = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto is_odd = hn::And(hn::ShiftRight<kDropped>(absolute), hn::Set(di, 1));
    const auto rounded = hn::Add(hn::Add(absolute, hn::Set(di, (1 << (kDropped - 1)) - 1)), is_odd);
    const auto normal =
        hn::Sub(hn::ShiftRight<kDropped>(rounded), hn::Set(di, (127 - kBias) << kMantissaBits));
    // Next to 2^23 quanta the processor's own addition rounds to whole quanta.
    const auto anchor = hn::Set(di, (151 - kBias - kMantissaBits) << 23);
    const auto subnormal =
        hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, absolute), hn::BitCast(d, anchor))), anchor);
    auto code =
        hn::IfThenElse(hn::Lt(absolute, hn::Set(di, (128 - kBias) << 23)), subnormal, normal);
    code = hn::Min(code, hn::Set(di, kLargest));
    auto nan = hn::Set(di, kInfinity);
    if constexpr (kHasInfinity) {
      const auto fraction = hn::And(absolute, hn::Set(di, 0x7fffff));
      nan = hn::Or(hn::Or(nan, hn::Set(di, 1 << (kMantissaBits - 1))),
                   hn::ShiftRight<kDropped>(fraction));
    }
    code = hn::IfThenElse(hn::Gt(absolute, hn::Set(di, 0x7f800000)), nan, code);
    const auto sign = hn::And(hn::ShiftRight<kSignShift>(bits), hn::Set(di, kMagnitude + 1));
    return hn::DemoteTo(Tag(), hn::Or(code, sign));
  }

 private:
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - kMantissaBits;
  static constexpr int kMagnitude = (1 << (kExponentBits + kMantissaBits)) - 1;
  static constexpr int kSignShift = 31 - kExponentBits - kMantissaBits;
  static constexpr int kInfinity =
      kHasInfinity ? ((1 << kExponentBits) - 1) << kMantissaBits : kMagnitude;
};

// SSE4 has no conversion instruction and Highway's emulation leaves out infinity and NaN.
#if HWY_TARGET == HWY_SSE4
using Half = SmallFloat<std::uint16_t, 5, 10, 0x7c00, true>;
#else
/// fp16, which instructions convert.
struct Half {
  using Stored = std::uint16_t;
  using Wide = hn::ScalableTag<float>;
  using Tag = hn::Rebind<Stored, Wide>;
  using Converted = hn::Rebind<hwy::float16_t, Wide>;

  template <class Op, class V>
  static HWY_INLINE V combine(const Op& op, V left, V right) {
    return narrow(op(Wide(), widen(left), widen(right)));
  }
  static HWY_INLINE hn::Vec<Wide> widen(hn::Vec<Tag> stored) {
    return hn::PromoteTo(Wide(), hn::BitCast(Converted(), stored));
  }
  static HWY_INLINE hn::Vec<Tag> narrow(hn::Vec<Wide> value) {
    return hn::BitCast(Tag(), hn::DemoteTo(Converted(), value));
  }
};
#endif

/// The bits of an fp32 whose upper half is the nearest bf16, ties to even. NaN stays NaN where its
/// lower half is zero.
template <class DU>
HWY_INLINE hn::Vec<DU> rounded_to_upper_half(DU du, hn::Vec<DU> bits) {
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), is_odd);
}

/// The CombineKernels of a format that computes in fp32. `kStreams`: sums have a streaming form.
template <class Format, bool kStreams>
CombineKernels small_kernels(OpKind op) {
  switch (op) {
    case OpKind::kSum:
      if constexpr (kStreams) return with_streaming<Format, Sum>();
      return without_streaming<Format, Sum>();
    case OpKind::kProduct:
      return without_streaming<Format, Product>();
    case OpKind::kMin:
      return without_streaming<Format, Min>();
    case OpKind::kMax:
      return without_streaming<Format, Max>();
    default:
      return {};
  }
}

/// The ScaleKernel of a format that computes in fp32: the scalar is rounded to fp32 first. A NaN
/// loses its payload, which bf16 relies on.
template <class Format, class Op>
void small_scale(void* out, const void* in, std::size_t count, double scalar) {
  const bool is_nan = scalar != scalar;
  const Op op{is_nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(scalar)};
  combine_from<Format>(op, out, in, in, 0, count);
}

template <class Format>
ScaleKernel small_scale_of(bool divide) {
  return divide ? small_scale<Format, Divide<float>> : small_scale<Format, Scale<float>>;
}

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
