// The operators on vectors, for the instruction set being compiled. Each is a value whose call
// combines two vectors lane by lane; `left` comes from lower ranks. Included by kernels_*.cc once
// per target.

// Highway's per-target include guard.
#if defined(UNISONO_COMPUTE_OPERATORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef UNISONO_COMPUTE_OPERATORS_INL_H_
#undef UNISONO_COMPUTE_OPERATORS_INL_H_
#else
#define UNISONO_COMPUTE_OPERATORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V left, V right) const {
    return hn::Add(left, right);
  }
};

/// left * right; of integers the lower half. Highway 1.0.3 lacks 8-bit products and, below AVX-512,
/// 64-bit ones: they are put together from wider and narrower ones. Unsigned lanes only.
template <class D, class V>
HWY_INLINE V multiply(D d, V left, V right) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 1) {
    const hn::RepartitionToWide<D> wide;
    const auto l = hn::BitCast(wide, left);
    const auto r = hn::BitCast(wide, right);
    const auto even = hn::And(hn::Mul(l, r), hn::Set(wide, 0x00ff));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(l), hn::ShiftRight<8>(r)));
    return hn::BitCast(d, hn::Or(even, odd));
  } else if constexpr (!hwy::IsFloat<T>() && sizeof(T) == 8) {
    const hn::Repartition<std::uint32_t, D> narrow;
    const auto l = hn::BitCast(narrow, left);
    const auto r = hn::BitCast(narrow, right);
    const auto l_upper = hn::BitCast(narrow, hn::ShiftRight<32>(left));
    const auto r_upper = hn::BitCast(narrow, hn::ShiftRight<32>(right));
    const auto cross = hn::Add(hn::MulEven(l, r_upper), hn::MulEven(l_upper, r));
    return hn::Add(hn::MulEven(l, r), hn::ShiftLeft<32>(cross));
  } else {
    return hn::Mul(left, right);
  }
}

struct Product {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V left, V right) const {
    return multiply(d, left, right);
  }
};

/// Equal numbers have equal bits except the two zeros, where OR of the bits gives -0 and AND gives
/// +0: that is the order -0 < +0. A comparison with NaN is false, so a NaN on the right is taken by
/// the comparison and one on the left by the last select.
struct Min {
  template <class D, class V>
  HWY_INLINE V operator()(D, V left, V right) const {
    if constexpr (!hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::Min(left, right);
    } else {
      const V less = hn::IfThenElse(hn::Lt(left, right), left, right);
      const V ordered = hn::IfThenElse(hn::Eq(left, right), hn::Or(left, right), less);
      return hn::IfThenElse(hn::IsNaN(left), left, ordered);
    }
  }
};

struct Max {
  template <class D, class V>
  HWY_INLINE V operator()(D, V left, V right) const {
    if constexpr (!hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::Max(left, right);
    } else {
      const V more = hn::IfThenElse(hn::Lt(right, left), left, right);
      const V ordered = hn::IfThenElse(hn::Eq(left, right), hn::And(left, right), more);
      return hn::IfThenElse(hn::IsNaN(left), left, ordered);
    }
  }
};

/// (a + bi)(c + di) = (ac - bd) + (ad + bc)i on interleaved lanes, every product rounded.
struct ComplexProduct {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V left, V right) const {
    const V by_real = hn::Mul(hn::DupEven(left), right);                       // ac, ad
    const V by_imaginary = hn::Mul(hn::DupOdd(left), hn::Reverse2(d, right));  // bd, bc
    return hn::OddEven(hn::Add(by_real, by_imaginary), hn::Sub(by_real, by_imaginary));
  }
};

/// left * scalar; `right` is ignored.
template <typename T>
struct Scale {
  T scalar;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V left, V) const {
    return multiply(d, left, hn::Set(d, scalar));
  }
};

/// left / scalar; `right` is ignored.
template <typename T>
struct Divide {
  T scalar;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V left, V) const {
    return hn::Div(left, hn::Set(d, scalar));
  }
};

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
