// Sums of many inputs at once that are rounded once: what the exact sum rounds to, whatever the
// order of the inputs. fp32, fp16 and bf16. Compiled once per instruction set. Thread rule: pure
// functions.
//
// Three ways, each for the sums that the one before cannot do:
//   plain     fp64 sums, which are exact where the inputs' magnitudes lie near enough together
//   errors    fp64 sums and the fp64 sum of what each addition loses (TwoSum: Knuth, The Art of
//             Computer Programming 2, 4.2.2), where nothing is lost of that
//   ExactSum  one value after the other
#include "compute/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/kernels_exact.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <bit>
#include <cmath>

#include "compute/combine_loop-inl.h"
#include "compute/exact_sum.h"
#include "compute/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
using Doubles = hn::RepartitionToWide<Floats>;
using Halves = hn::Half<Floats>;
using Bits = hn::RebindToUnsigned<Floats>;

/// A Floats vector's worth of fp64: the lower half of its lanes, and the upper.
struct Sums {
  hn::Vec<Doubles> lower;
  hn::Vec<Doubles> upper;
};

HWY_INLINE Sums promote(hn::Vec<Floats> values) {
  const Doubles dd;
  return {hn::PromoteTo(dd, hn::LowerHalf(Halves(), values)),
          hn::PromoteTo(dd, hn::UpperHalf(Halves(), values))};
}

HWY_INLINE hn::Vec<Floats> demote(const Sums& sums) {
  const Halves dh;
  return hn::Combine(Floats(), hn::DemoteTo(dh, sums.upper), hn::DemoteTo(dh, sums.lower));
}

/// `value`, where it is even, one step further from zero where it lies `below` the exact number's
/// magnitude, and one step nearer where it lies `above`. A step of the bits is one of the number,
/// infinity included.
template <class D, class DU = hn::RebindToUnsigned<D>>
HWY_INLINE hn::Vec<D> to_odd(D d, hn::Vec<D> value, hn::Mask<D> below, hn::Mask<D> above) {
  const DU du;
  const auto bits = hn::BitCast(du, value);
  const auto one = hn::Set(du, 1);
  const auto is_even = hn::Eq(hn::And(bits, one), hn::Zero(du));
  const auto step_out = hn::And(hn::RebindMask(du, below), is_even);
  const auto step_in = hn::And(hn::RebindMask(du, above), is_even);
  return hn::BitCast(d, hn::IfThenElse(step_out, hn::Add(bits, one),
                                       hn::IfThenElse(step_in, hn::Sub(bits, one), bits)));
}

/// fp64 to fp32, rounded to odd.
HWY_INLINE hn::Vec<Halves> demote_to_odd(hn::Vec<Doubles> exact) {
  const Doubles dd;
  const Halves dh;
  const auto nearest = hn::DemoteTo(dh, exact);
  const auto has = hn::Abs(hn::PromoteTo(dd, nearest));
  const auto wants = hn::Abs(exact);
  // As fp32 masks: 1 where true.
  const auto one = hn::Set(dd, 1.0);
  const auto below = hn::DemoteTo(dh, hn::IfThenElseZero(hn::Lt(has, wants), one));
  const auto above = hn::DemoteTo(dh, hn::IfThenElseZero(hn::Gt(has, wants), one));
  return to_odd(dh, nearest, hn::Gt(below, hn::Zero(dh)), hn::Gt(above, hn::Zero(dh)));
}

HWY_INLINE hn::Vec<Floats> demote_to_odd(const Sums& sums) {
  return hn::Combine(Floats(), demote_to_odd(sums.upper), demote_to_odd(sums.lower));
}

/// A sum of this many fp16, which are multiples of 2^-24 below 2^16, is exact in fp64.
constexpr int kPlainAddendsMax = 8192;

struct Fp32 {
  using Stored = float;
  using Tag = Floats;
  static constexpr int kSignificantBits = 24;
  static HWY_INLINE hn::Vec<Floats> widen(hn::Vec<Tag> stored) { return stored; }
  static HWY_INLINE hn::Vec<Tag> round(const Sums& exact) { return demote(exact); }
};

struct Fp16 {
  using Stored = std::uint16_t;
  using Tag = hn::Rebind<Stored, Floats>;
  static constexpr int kSignificantBits = 0;  // magnitudes do not matter up to kPlainAddendsMax
  static HWY_INLINE hn::Vec<Floats> widen(hn::Vec<Tag> stored) { return Half::widen(stored); }
  static HWY_INLINE hn::Vec<Tag> round(const Sums& exact) {
    return Half::narrow(demote_to_odd(exact));
  }
};

struct Bf16 {
  using Stored = std::uint16_t;
  using Tag = hn::Rebind<Stored, Floats>;
  static constexpr int kSignificantBits = 8;
  static HWY_INLINE hn::Vec<Floats> widen(hn::Vec<Tag> stored) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), stored)));
  }
  static HWY_INLINE hn::Vec<Tag> round(const Sums& exact) {
    const Bits du;
    const auto rounded = rounded_to_upper_half(du, hn::BitCast(du, demote_to_odd(exact)));
    return hn::TruncateTo(Tag(), hn::ShiftRight<16>(rounded));
  }
};

/// The inputs at the vector from element `at` on, or the last `rest` of them where `kWhole` is not.
template <class Format, bool kWhole>
struct Addends {
  const void* const* inputs;
  int count;
  std::size_t at;
  std::size_t rest;

  HWY_INLINE hn::Vec<Floats> operator[](int input) const {
    const typename Format::Tag d;
    const auto* const from = element<typename Format::Stored>(inputs[input], at);
    if constexpr (kWhole) {
      return Format::widen(hn::LoadU(d, from));
    } else {
      return Format::widen(load_part(d, from, rest));
    }
  }
};

/// fp64 sums; false where a lane's may not be exact: the last significant bit of its smallest input
/// lies more than 53 bits below the largest sum that its largest input allows. `scale`: n * 2^(b -
/// 53) for n inputs, up to a power of two, of b significant bits.
template <class Format, class Values>
HWY_INLINE bool sum_plainly(const Values& values, float scale, Sums* sums) {
  const Floats d;
  const Bits du;
  const auto one = hn::Set(du, 1u);
  const auto first = values[0];
  *sums = promote(first);
  auto largest = hn::BitCast(du, hn::Abs(first));
  auto smallest =
      hn::Sub(largest, one);  // zero, which is in every sum exactly, becomes the largest
  for (int i = 1; i < values.count; ++i) {
    const auto value = values[i];
    const Sums next = promote(value);
    sums->lower = hn::Add(sums->lower, next.lower);
    sums->upper = hn::Add(sums->upper, next.upper);
    if constexpr (Format::kSignificantBits > 0) {
      const auto magnitude = hn::BitCast(du, hn::Abs(value));
      largest = hn::Max(largest, magnitude);
      smallest = hn::Min(smallest, hn::Sub(magnitude, one));
    }
  }
  if constexpr (Format::kSignificantBits == 0) return values.count <= kPlainAddendsMax;
  const auto bound = hn::Mul(hn::BitCast(d, largest), hn::Set(d, scale));
  return hn::AllTrue(d, hn::Le(bound, hn::BitCast(d, hn::Add(smallest, one))));
}

/// A sum of two numbers, and what it lacks of the exact one.
template <class D, class V>
HWY_INLINE void two_sum(D, V left, V right, V* sum, V* error) {
  *sum = hn::Add(left, right);
  const auto right_part = hn::Sub(*sum, left);
  const auto left_part = hn::Sub(*sum, right_part);
  *error = hn::Add(hn::Sub(left, left_part), hn::Sub(right, right_part));
}

/// One half of the lanes: their sum, what it lacks, and whether that is all that it lacks.
class SumWithErrors {
 public:
  explicit HWY_INLINE SumWithErrors(hn::Vec<Doubles> first)
      : sum_(first), error_(hn::Zero(Doubles())), is_exact_(hn::Eq(first, first)) {}

  HWY_INLINE void add(hn::Vec<Doubles> value) {
    const Doubles dd;
    hn::Vec<Doubles> lost, lost_of_error;
    two_sum(dd, sum_, value, &sum_, &lost);
    two_sum(dd, error_, lost, &error_, &lost_of_error);
    is_exact_ = hn::And(is_exact_, hn::Eq(lost_of_error, hn::Zero(dd)));
  }
  HWY_INLINE bool is_exact() const { return hn::AllTrue(Doubles(), is_exact_); }
  HWY_INLINE hn::Vec<Doubles> rounded_to_odd() const {
    const Doubles dd;
    hn::Vec<Doubles> sum, error;
    two_sum(dd, sum_, error_, &sum, &error);
    sum = hn::IfThenElse(hn::Eq(error_, hn::Zero(dd)), sum_, sum);  // which may be -0
    // The exact sum lies further from zero where the error has the sum's sign.
    const auto outward = hn::CopySign(hn::Set(dd, 1.0), hn::Xor(sum, error));
    const auto differs = hn::Ne(error, hn::Zero(dd));
    return to_odd(dd, sum, hn::And(differs, hn::Gt(outward, hn::Zero(dd))),
                  hn::And(differs, hn::Lt(outward, hn::Zero(dd))));
  }

 private:
  hn::Vec<Doubles> sum_;
  hn::Vec<Doubles> error_;
  hn::Mask<Doubles> is_exact_;
};

template <class Values>
HWY_NOINLINE bool sum_with_errors(const Values& values, Sums* sums) {
  const Sums first = promote(values[0]);
  SumWithErrors lower(first.lower);
  SumWithErrors upper(first.upper);
  for (int i = 1; i < values.count; ++i) {
    const Sums next = promote(values[i]);
    lower.add(next.lower);
    upper.add(next.upper);
  }
  *sums = {lower.rounded_to_odd(), upper.rounded_to_odd()};
  return lower.is_exact() && upper.is_exact();
}

template <class Values>
HWY_NOINLINE void sum_one_by_one(const Values& values, Sums* sums) {
  const Floats d;
  const Doubles dd;
  ExactSum exact[hn::MaxLanes(d)];
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  HWY_ALIGN double rounded[hn::MaxLanes(d)];
  for (int i = 0; i < values.count; ++i) {
    hn::Store(values[i], d, lanes);
    for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) exact[lane].add(lanes[lane]);
  }
  for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane) {
    rounded[lane] = exact[lane].rounded_to_odd();
  }
  *sums = {hn::Load(dd, rounded), hn::Load(dd, rounded + hn::Lanes(dd))};
}

template <class Format, bool kWhole>
HWY_INLINE hn::Vec<typename Format::Tag> sum_of(const Addends<Format, kWhole>& addends,
                                                float scale) {
  Sums sums;
  if (!sum_plainly<Format>(addends, scale, &sums) && !sum_with_errors(addends, &sums)) {
    sum_one_by_one(addends, &sums);
  }
  return Format::round(sums);
}

template <class Format>
void exact_sum(void* out, const void* const* inputs, int n, std::size_t count) {
  using T = typename Format::Stored;
  const typename Format::Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto inputs_bound = static_cast<float>(std::bit_ceil(static_cast<unsigned>(n)));
  const float scale = std::ldexp(inputs_bound, Format::kSignificantBits - 53);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(sum_of(Addends<Format, true>{inputs, n, i, lanes}, scale), d, element<T>(out, i));
  }
  if (const std::size_t rest = count - i; rest != 0) {
    store_part(sum_of(Addends<Format, false>{inputs, n, i, rest}, scale), d, element<T>(out, i),
               rest);
  }
}

ExactKernel exact_kernel(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return exact_sum<Fp32>;
    case DataType::kFloat16:
      return exact_sum<Fp16>;
    case DataType::kBfloat16:
      return exact_sum<Bf16>;
    default:
      return nullptr;
  }
}

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::compute {

HWY_EXPORT(exact_kernel);

ExactKernel find_exact_kernel(DataType type) { return HWY_DYNAMIC_DISPATCH(exact_kernel)(type); }

}  // namespace unisono::compute
#endif
