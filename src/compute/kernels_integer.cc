// Integer sum, product, min, max, scaling and division. Sums and products wrap: they are computed
// as unsigned numbers, so signed and unsigned types share them. Compiled once per instruction set.
// Thread rule: pure functions.
#include "compute/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/kernels_integer.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <type_traits>

#include "compute/combine_loop-inl.h"
#include "compute/operators-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::compute::HWY_NAMESPACE {

template <typename T>
CombineKernels integer_kernels_of(OpKind op) {
  using Wrapping = Plain<std::make_unsigned_t<T>>;
  switch (op) {
    case OpKind::kSum:
      return with_streaming<Wrapping, Sum>();
    case OpKind::kProduct:
      return without_streaming<Wrapping, Product>();
    case OpKind::kMin:
      return without_streaming<Plain<T>, Min>();
    case OpKind::kMax:
      return without_streaming<Plain<T>, Max>();
    default:
      return {};
  }
}

CombineKernels integer_kernels(DataType type, OpKind op) {
  switch (type) {
    case DataType::kInt8:
      return integer_kernels_of<std::int8_t>(op);
    case DataType::kInt16:
      return integer_kernels_of<std::int16_t>(op);
    case DataType::kInt32:
      return integer_kernels_of<std::int32_t>(op);
    case DataType::kInt64:
      return integer_kernels_of<std::int64_t>(op);
    case DataType::kUint8:
      return integer_kernels_of<std::uint8_t>(op);
    case DataType::kUint16:
      return integer_kernels_of<std::uint16_t>(op);
    case DataType::kUint32:
      return integer_kernels_of<std::uint32_t>(op);
    case DataType::kUint64:
      return integer_kernels_of<std::uint64_t>(op);
    default:
      return {};
  }
}

/// Toward zero and modulo 2^64; what lies beyond 64 bits becomes the nearest limit, NaN zero.
std::uint64_t wrapped(double scalar) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (!(scalar == scalar)) return 0;
  if (scalar >= 2 * kTwoTo63) return ~std::uint64_t{0};
  if (scalar >= kTwoTo63) return static_cast<std::uint64_t>(scalar);
  if (scalar <= -kTwoTo63) return std::uint64_t{1} << 63;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(scalar));
}

template <typename T>
void integer_scale_kernel(void* out, const void* in, std::size_t count, double scalar) {
  using Unsigned = std::make_unsigned_t<T>;
  const Scale<Unsigned> op{static_cast<Unsigned>(wrapped(scalar))};
  combine_from<Plain<Unsigned>>(op, out, in, in, 0, count);
}

/// No instruction set divides integers by vectors; averages of integers are rare enough.
/// `scalar` is the number of ranks: whole, positive, and possibly more than T can hold.
template <typename T>
void integer_divide_kernel(void* out, const void* in, std::size_t count, double scalar) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  const Wide divisor = static_cast<Wide>(scalar);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, element<T>(in, i), sizeof value);
    value = static_cast<T>(static_cast<Wide>(value) / divisor);
    std::memcpy(element<T>(out, i), &value, sizeof value);
  }
}

template <typename T>
ScaleKernel integer_scale_of(bool divide) {
  return divide ? integer_divide_kernel<T> : integer_scale_kernel<T>;
}

ScaleKernel integer_scale(DataType type, bool divide) {
  switch (type) {
    case DataType::kInt8:
      return integer_scale_of<std::int8_t>(divide);
    case DataType::kInt16:
      return integer_scale_of<std::int16_t>(divide);
    case DataType::kInt32:
      return integer_scale_of<std::int32_t>(divide);
    case DataType::kInt64:
      return integer_scale_of<std::int64_t>(divide);
    case DataType::kUint8:
      return integer_scale_of<std::uint8_t>(divide);
    case DataType::kUint16:
      return integer_scale_of<std::uint16_t>(divide);
    case DataType::kUint32:
      return integer_scale_of<std::uint32_t>(divide);
    case DataType::kUint64:
      return integer_scale_of<std::uint64_t>(divide);
    default:
      return nullptr;
  }
}

}  // namespace unisono::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::compute {

HWY_EXPORT(integer_kernels);
HWY_EXPORT(integer_scale);

CombineKernels find_integer_kernels(DataType type, OpKind op) {
  return HWY_DYNAMIC_DISPATCH(integer_kernels)(type, op);
}
ScaleKernel find_integer_scale(DataType type, bool divide) {
  return HWY_DYNAMIC_DISPATCH(integer_scale)(type, divide);
}

}  // namespace unisono::compute
#endif
