// What looks at bits and not at numbers: bitwise operators, logical operators on every type, all of
// bool, and copying with non-temporal stores. Compiled once per instruction set.
// Thread rule: pure functions.
#include <atomic>

#include "compute/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/kernels_bits.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "compute/combine_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {

struct BitAnd {
  template <class D, class V>
  HWY_INLINE V operator()(D, V left, V right) const {
    return hn::And(left, right);
  }
};
struct BitOr {
  template <class D, class V>
  HWY_INLINE V operator()(D, V left, V right) const {
    return hn::Or(left, right);
  }
};
struct BitXor {
  template <class D, class V>
  HWY_INLINE V operator()(D, V left, V right) const {
    return hn::Xor(left, right);
  }
};
/// Takes what it is asked to copy as `left`.
struct Left {
  template <class D, class V>
  HWY_INLINE V operator()(D, V left, V) const {
    return left;
  }
};

/// Elements read as "is not zero", written as the type's 1 or 0. Logic maps 1s and 0s alike under
/// the bitwise operators, so BitAnd is the logical and. kIgnoresSign: -0 of a float is zero.
template <typename T, T kOne, bool kIgnoresSign>
struct Truth {
  using Stored = T;
  using Tag = hn::ScalableTag<T>;
  template <class Op, class V>
  static HWY_INLINE V combine(const Op& op, V left, V right) {
    return op(Tag(), one_or_zero(left), one_or_zero(right));
  }

 private:
  template <class V>
  static HWY_INLINE V one_or_zero(V value) {
    const Tag d;
    if constexpr (kIgnoresSign) value = hn::And(value, hn::Set(d, static_cast<T>(T(~T{0}) >> 1)));
    return hn::IfThenElse(hn::Eq(value, hn::Zero(d)), hn::Zero(d), hn::Set(d, kOne));
  }
};

using Truth8 = Truth<std::uint8_t, 1, false>;
using Truth16 = Truth<std::uint16_t, 1, false>;
using Truth32 = Truth<std::uint32_t, 1, false>;
using Truth64 = Truth<std::uint64_t, 1, false>;
using TruthHalf = Truth<std::uint16_t, 0x3c00, true>;
using TruthBfloat = Truth<std::uint16_t, 0x3f80, true>;
using TruthE4m3 = Truth<std::uint8_t, 0x38, true>;
using TruthE5m2 = Truth<std::uint8_t, 0x3c, true>;
using TruthFloat = Truth<std::uint32_t, 0x3f800000, true>;
using TruthDouble = Truth<std::uint64_t, 0x3ff0000000000000, true>;

/// Calls `use.operator()<Format>()` with the Truth format of `type`; complex numbers have none.
template <class Use>
auto with_truth(DataType type, const Use& use) -> decltype(use.template operator()<Truth8>()) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
      return use.template operator()<Truth8>();
    case DataType::kInt16:
    case DataType::kUint16:
      return use.template operator()<Truth16>();
    case DataType::kInt32:
    case DataType::kUint32:
      return use.template operator()<Truth32>();
    case DataType::kInt64:
    case DataType::kUint64:
      return use.template operator()<Truth64>();
    case DataType::kFloat16:
      return use.template operator()<TruthHalf>();
    case DataType::kBfloat16:
      return use.template operator()<TruthBfloat>();
    case DataType::kFloat8E4m3:
      return use.template operator()<TruthE4m3>();
    case DataType::kFloat8E5m2:
      return use.template operator()<TruthE5m2>();
    case DataType::kFloat32:
      return use.template operator()<TruthFloat>();
    case DataType::kFloat64:
      return use.template operator()<TruthDouble>();
    case DataType::kComplex64:
    case DataType::kComplex128:
      return {};
  }
  return {};
}

template <class Op>
CombineKernels logical_of(DataType type) {
  return with_truth(type, []<class Format>() { return without_streaming<Format, Op>(); });
}

template <class Format>
void normalize_kernel(void* out, const void* in, std::size_t count) {
  combine_kernel<Format, Left>(out, in, in, count);
}

NormalizeKernel normalize(DataType type) {
  return with_truth(type,
                    []<class Format>() -> NormalizeKernel { return normalize_kernel<Format>; });
}

template <class Op>
CombineKernels bitwise_of(DataType type) {
  switch (size_of(type)) {
    case 1:
      return without_streaming<Plain<std::uint8_t>, Op, 1>();
    case 2:
      return without_streaming<Plain<std::uint8_t>, Op, 2>();
    case 4:
      return without_streaming<Plain<std::uint8_t>, Op, 4>();
    case 8:
      return without_streaming<Plain<std::uint8_t>, Op, 8>();
    default:
      return {};
  }
}

/// Bool: sum and max are the logical or, product and min the logical and.
CombineKernels bool_kernels(OpKind op) {
  switch (op) {
    case OpKind::kProduct:
    case OpKind::kMin:
    case OpKind::kBitAnd:
    case OpKind::kLogicalAnd:
      return logical_of<BitAnd>(DataType::kBool);
    case OpKind::kSum:
    case OpKind::kMax:
    case OpKind::kBitOr:
    case OpKind::kLogicalOr:
      return logical_of<BitOr>(DataType::kBool);
    case OpKind::kBitXor:
    case OpKind::kLogicalXor:
      return logical_of<BitXor>(DataType::kBool);
    default:
      return {};
  }
}

CombineKernels bit_kernels(DataType type, OpKind op) {
  if (type == DataType::kBool) return bool_kernels(op);
  switch (op) {
    case OpKind::kBitAnd:
      return bitwise_of<BitAnd>(type);
    case OpKind::kBitOr:
      return bitwise_of<BitOr>(type);
    case OpKind::kBitXor:
      return bitwise_of<BitXor>(type);
    case OpKind::kLogicalAnd:
      return logical_of<BitAnd>(type);
    case OpKind::kLogicalOr:
      return logical_of<BitOr>(type);
    case OpKind::kLogicalXor:
      return logical_of<BitXor>(type);
    default:
      return {};
  }
}

void stream_copy(void* out, const void* in, std::size_t bytes) {
  streaming_kernel<Plain<std::uint8_t>, Left>(out, in, in, bytes);
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::compute {

HWY_EXPORT(bit_kernels);
HWY_EXPORT(normalize);
HWY_EXPORT(stream_copy);
HWY_EXPORT(target_name);

CombineKernels find_bit_kernels(DataType type, OpKind op) {
  return HWY_DYNAMIC_DISPATCH(bit_kernels)(type, op);
}
NormalizeKernel find_normalize(DataType type) { return HWY_DYNAMIC_DISPATCH(normalize)(type); }

namespace {

enum class Support { kUnasked, kNo, kYes };
constinit std::atomic<Support> support{Support::kUnasked};

}  // namespace

// Asked once: the CPUID behind it leaves a virtual machine and costs microseconds each time.
bool processor_supported() {
  Support known = support.load(std::memory_order_relaxed);
  if (known == Support::kUnasked) {
    known = (HWY_SUPPORTED_TARGETS & HWY_TARGETS) != 0 ? Support::kYes : Support::kNo;
    support.store(known, std::memory_order_relaxed);
  }
  return known == Support::kYes;
}

void stream_bytes(void* out, const void* in, std::size_t bytes) {
  if (processor_supported()) return HWY_DYNAMIC_DISPATCH(stream_copy)(out, in, bytes);
  if (bytes != 0) std::memcpy(out, in, bytes);
}

void store_fence() { hwy::FlushStream(); }

const char* instruction_set() {
  return processor_supported() ? HWY_DYNAMIC_DISPATCH(target_name)() : "none";
}

}  // namespace unisono::compute
#endif
