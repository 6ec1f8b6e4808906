// The vocabulary of every call: ranks, element types, reduction operators, memory kinds.
// Values only; no state, safe from any thread.
#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "unisono/export.h"

namespace unisono {

/// Index of a process or thread in a communicator, 0 to size() - 1.
using Rank = std::int32_t;

/// In `receive`: take the message of whichever rank sent first.
inline constexpr Rank kAnyRank = -1;

/// What is not said yet; no call takes it.
inline constexpr Rank kNoRank = -2;

/// Tags of send and receive are 32-bit; every value is allowed.
using Tag = std::uint32_t;

enum class DataType : std::uint8_t {
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat16,     ///< IEEE binary16
  kBfloat16,    ///< upper half of a binary32
  kFloat8E4m3,  ///< OCP 8-bit: 4 exponent bits, no infinity, overflow saturates to 448
  kFloat8E5m2,  ///< OCP 8-bit: 5 exponent bits, overflow of a conversion saturates to 57344
  kFloat32,
  kFloat64,
  kBool,        ///< one byte; zero is false, anything else is true, results are 0 or 1
  kComplex64,   ///< two float32
  kComplex128,  ///< two float64
};
inline constexpr int kDataTypeCount = 17;

/// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8E4m3:
    case DataType::kFloat8E5m2:
    case DataType::kBool:
      return 1;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
    case DataType::kComplex64:
      return 8;
    case DataType::kComplex128:
      return 16;
  }
  return 0;
}

/// "int8" ... "complex128"; also what `--datatype` of the tools accepts.
UNISONO_API std::string_view name_of(DataType type);
/// Inverse of name_of; also takes nccl-tests' spellings (half, float, double, fp8_e4m3, ...).
/// False when unknown.
UNISONO_API bool parse(std::string_view text, DataType* type);

/// Element types without a C++ built-in of their own: the bits and nothing else. Convert with
/// the functions of unisono/float_types.h.
struct Float16 {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};
struct Float8E4m3 {
  std::uint8_t bits;
};
struct Float8E5m2 {
  std::uint8_t bits;
};

enum class OpKind : std::uint8_t {
  kSum,
  kProduct,
  kMin,      ///< NaN propagates, -0 < +0
  kMax,      ///< NaN propagates, -0 < +0
  kAverage,  ///< sum, then one division by the number of ranks; integers truncate toward zero
  kPremultipliedSum,  ///< each rank's input times its own scalar, rounded, then summed
  kBitAnd,
  kBitOr,
  kBitXor,
  kLogicalAnd,  ///< elements read as "is not zero"; the result is 0 or 1
  kLogicalOr,
  kLogicalXor,
  kUser,
};
inline constexpr int kOpKindCount = 13;

UNISONO_API std::string_view name_of(OpKind kind);

/// A user's operator: inout[i] = in[i] (op) inout[i] for count elements, where `in` comes from
/// lower ranks than `inout`. Called on the thread that makes progress; it must not call unisono,
/// throw or block. Neither pointer is more aligned than its element type.
using UserReduce = void (*)(const void* in, void* inout, std::size_t count, DataType type,
                            void* context);

/// What to do with the elements of all ranks. A small value; copy it freely.
/// User operators must be associative; they are compared between ranks by name.
struct ReduceOp {
  OpKind kind = OpKind::kSum;
  /// kPremultipliedSum: this rank's factor, rounded to the element type (fp16, bf16 and fp8: to
  /// fp32) before use. Ranks may differ.
  double scalar = 1.0;
  UserReduce function = nullptr;
  void* context = nullptr;
  const char* name = nullptr;  ///< kUser: a string that outlives the call
  bool commutative = true;     ///< kUser: false keeps rank order in every algorithm
};

/// Operators by name, in a namespace of their own: std::min and std::max stay apart.
namespace ops {

inline constexpr ReduceOp sum{OpKind::kSum};
inline constexpr ReduceOp product{OpKind::kProduct};
inline constexpr ReduceOp min{OpKind::kMin};
inline constexpr ReduceOp max{OpKind::kMax};
inline constexpr ReduceOp average{OpKind::kAverage};
inline constexpr ReduceOp bit_and{OpKind::kBitAnd};
inline constexpr ReduceOp bit_or{OpKind::kBitOr};
inline constexpr ReduceOp bit_xor{OpKind::kBitXor};
inline constexpr ReduceOp logical_and{OpKind::kLogicalAnd};
inline constexpr ReduceOp logical_or{OpKind::kLogicalOr};
inline constexpr ReduceOp logical_xor{OpKind::kLogicalXor};
constexpr ReduceOp premultiplied_sum(double scalar) { return {OpKind::kPremultipliedSum, scalar}; }
constexpr ReduceOp user_op(const char* name, UserReduce function, void* context = nullptr,
                           bool commutative = true) {
  return {OpKind::kUser, 1.0, function, context, name, commutative};
}

}  // namespace ops

/// True where `op` means something on `type`: bitwise needs integers or bool, min and max have no
/// meaning on complex numbers, average and premultiplied sum none on bool, and logical operators
/// none on complex numbers.
UNISONO_API bool is_meaningful(OpKind op, DataType type);

/// Where a buffer lies.
enum class MemoryKind : std::uint8_t { kHost, kCuda };

/// Which reduction order a call asks for.
enum class Order : std::uint8_t {
  kAny,  ///< the fastest; the same result on every rank of one call
  /// Bitwise equal to the pairwise tree over ranks 0..N-1, T(lo, hi) split at lo + the largest
  /// power of two below hi - lo, whatever the algorithm, transport, chunking and topology.
  kCanonical,
  /// Sums, averages and pre-multiplied sums of fp32, fp16 and bf16 are the exact sum of the ranks'
  /// inputs, rounded once: the same bits whatever the order of the addends, so also whichever rank
  /// has which. (Inputs are multiplied, and rounded, before; averages divided after.) All else as
  /// kCanonical. Threads that flush subnormal numbers to zero must do so on all ranks, or on none.
  kExact,
};
inline constexpr int kOrderCount = 3;

UNISONO_API std::string_view name_of(Order order);
/// "any", "canonical" or "exact"; false where it is none of them.
UNISONO_API bool parse(std::string_view text, Order* order);

enum class Collective : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kAllGatherV,
  kReduceScatter,
  kReduceScatterV,
  kGather,
  kGatherV,
  kScatter,
  kScatterV,
  kAllToAll,
  kAllToAllV,
  kBarrier,
  kScan,
  kExscan,
  kSend,
  kReceive,
};
inline constexpr int kCollectiveCount = 18;

/// "all_reduce" ... "receive"; "unknown" for no collective.
UNISONO_API std::string_view name_of(Collective collective);
/// Inverse of name_of; also takes "allreduce" and "all-reduce". False when unknown.
UNISONO_API bool parse(std::string_view text, Collective* collective);

namespace detail {

template <typename T>
concept Integer = std::integral<T> && !std::same_as<T, bool> && sizeof(T) <= 8;

constexpr DataType integer_type(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return is_signed ? DataType::kInt8 : DataType::kUint8;
    case 2:
      return is_signed ? DataType::kInt16 : DataType::kUint16;
    case 4:
      return is_signed ? DataType::kInt32 : DataType::kUint32;
    default:
      return is_signed ? DataType::kInt64 : DataType::kUint64;
  }
}

}  // namespace detail

/// Maps a C++ element type to its DataType; a type without one has no `value`.
template <typename T>
struct DataTypeOf {};
template <DataType V>
struct DataTypeConstant {
  static constexpr DataType value = V;
};
template <>
struct DataTypeOf<bool> : DataTypeConstant<DataType::kBool> {};
template <>
struct DataTypeOf<Float16> : DataTypeConstant<DataType::kFloat16> {};
template <>
struct DataTypeOf<Bfloat16> : DataTypeConstant<DataType::kBfloat16> {};
template <>
struct DataTypeOf<Float8E4m3> : DataTypeConstant<DataType::kFloat8E4m3> {};
template <>
struct DataTypeOf<Float8E5m2> : DataTypeConstant<DataType::kFloat8E5m2> {};
template <>
struct DataTypeOf<float> : DataTypeConstant<DataType::kFloat32> {};
template <>
struct DataTypeOf<double> : DataTypeConstant<DataType::kFloat64> {};
template <>
struct DataTypeOf<std::complex<float>> : DataTypeConstant<DataType::kComplex64> {};
template <>
struct DataTypeOf<std::complex<double>> : DataTypeConstant<DataType::kComplex128> {};
template <detail::Integer T>
struct DataTypeOf<T> : DataTypeConstant<detail::integer_type(sizeof(T), std::is_signed_v<T>)> {};

template <typename T>
concept Element = requires {
  DataTypeOf<std::remove_cv_t<T>>::value;
};
template <Element T>
inline constexpr DataType data_type_of = DataTypeOf<std::remove_cv_t<T>>::value;

}  // namespace unisono
