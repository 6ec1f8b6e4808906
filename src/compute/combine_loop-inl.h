// The one loop all kernels are made of, for the instruction set being compiled: whole vectors, then
// a tail that computes exactly what a vector lane computes. Included by kernels_*.cc once per
// target. A kernel is a Format (how elements become vectors that can be computed with) and an
// operator on those vectors (operators-inl.h).

// Highway's per-target include guard.
#if defined(UNISONO_COMPUTE_COMBINE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef UNISONO_COMPUTE_COMBINE_LOOP_INL_H_
#undef UNISONO_COMPUTE_COMBINE_LOOP_INL_H_
#else
#define UNISONO_COMPUTE_COMBINE_LOOP_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Elements that are computed with as they are stored.
template <typename T>
struct Plain {
  using Stored = T;
  using Tag = hn::ScalableTag<T>;
  template <class Op, class V>
  static HWY_INLINE V combine(const Op& op, V left, V right) {
    return op(Tag(), left, right);
  }
};

/// The element at `index`; bytes are counted by hand because `base` may be misaligned.
template <typename T>
HWY_INLINE const T* element(const void* base, std::size_t index) {
  return reinterpret_cast<const T*>(static_cast<const char*>(base) + index * sizeof(T));
}
template <typename T>
HWY_INLINE T* element(void* base, std::size_t index) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + index * sizeof(T));
}

/// Loads the first `count` lanes, fewer than a vector, and touches no byte behind them.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_part(D d, const T* from, std::size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(d)] = {};
  std::memcpy(lanes, from, count * sizeof(T));
  return hn::Load(d, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_part(hn::Vec<D> value, D d, T* to, std::size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(value, d, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
#else
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#endif
}

template <class Format, class Op>
HWY_INLINE void combine_part(const Op& op, void* out, const void* left, const void* right,
                             std::size_t begin, std::size_t end) {
  using T = typename Format::Stored;
  const typename Format::Tag d;
  const std::size_t count = end - begin;
  if (count == 0) return;
  const auto l = load_part(d, element<T>(left, begin), count);
  const auto r = load_part(d, element<T>(right, begin), count);
  store_part(Format::combine(op, l, r), d, element<T>(out, begin), count);
}

/// out[i] = op(left[i], right[i]) from `i` = `begin` on. Each vector is loaded from both inputs
/// before it is stored, which is what makes out == left and out == right correct.
template <class Format, class Op>
HWY_INLINE void combine_from(const Op& op, void* out, const void* left, const void* right,
                             std::size_t begin, std::size_t count) {
  using T = typename Format::Stored;
  const typename Format::Tag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = begin;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {  // twice: the loop's own work is halved
    const auto l0 = hn::LoadU(d, element<T>(left, i));
    const auto r0 = hn::LoadU(d, element<T>(right, i));
    const auto l1 = hn::LoadU(d, element<T>(left, i + lanes));
    const auto r1 = hn::LoadU(d, element<T>(right, i + lanes));
    hn::StoreU(Format::combine(op, l0, r0), d, element<T>(out, i));
    hn::StoreU(Format::combine(op, l1, r1), d, element<T>(out, i + lanes));
  }
  if (i + lanes <= count) {
    const auto l = hn::LoadU(d, element<T>(left, i));
    const auto r = hn::LoadU(d, element<T>(right, i));
    hn::StoreU(Format::combine(op, l, r), d, element<T>(out, i));
    i += lanes;
  }
  combine_part<Format>(op, out, left, right, i, count);
}

/// The CombineKernel of a Format and an operator without state. kWidth: stored lanes per element.
template <class Format, class Op, std::size_t kWidth = 1>
void combine_kernel(void* out, const void* left, const void* right, std::size_t count) {
  combine_from<Format>(Op(), out, left, right, 0, count * kWidth);
}

/// The same with non-temporal stores for the part of `out` that is whole lines. Vectors of less
/// than 16 bytes (narrow floats on SSE4) have no such store.
template <class Format, class Op, std::size_t kWidth = 1>
void streaming_kernel(void* out, const void* left, const void* right, std::size_t count) {
  using T = typename Format::Stored;
  const typename Format::Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t lane_bytes = lanes * sizeof(T);
  count *= kWidth;
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % kLineBytes;
  const std::size_t head_bytes = misaligned == 0 ? 0 : kLineBytes - misaligned;
  const bool streams = head_bytes % sizeof(T) == 0 && lane_bytes >= 16 && lane_bytes <= kLineBytes;
  if (!streams) return combine_from<Format>(Op(), out, left, right, 0, count);
  const std::size_t head = std::min(count, head_bytes / sizeof(T));
  combine_from<Format>(Op(), out, left, right, 0, head);
  std::size_t i = head;
  for (; i + lanes <= count; i += lanes) {
    const auto l = hn::LoadU(d, element<T>(left, i));
    const auto r = hn::LoadU(d, element<T>(right, i));
    hn::Stream(Format::combine(Op(), l, r), d, element<T>(out, i));
  }
  combine_part<Format>(Op(), out, left, right, i, count);
}

template <class Format, class Op, std::size_t kWidth = 1>
CombineKernels with_streaming() {
  return {combine_kernel<Format, Op, kWidth>, streaming_kernel<Format, Op, kWidth>};
}
template <class Format, class Op, std::size_t kWidth = 1>
CombineKernels without_streaming() {
  return {combine_kernel<Format, Op, kWidth>, combine_kernel<Format, Op, kWidth>};
}

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
