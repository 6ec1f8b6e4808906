// Reduction: which kernels a call uses, and what surrounds them: user operators, preparation of
// inputs, division of averages. Thread rule: values, usable from any thread.
#include "compute/compute.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/exact_order.h"
#include "compute/kernels.h"

namespace unisono::compute {
namespace {

bool is_logical(OpKind kind) {
  return kind == OpKind::kLogicalAnd || kind == OpKind::kLogicalOr || kind == OpKind::kLogicalXor;
}

OpKind combination_of(OpKind kind) {
  const bool sums = kind == OpKind::kAverage || kind == OpKind::kPremultipliedSum;
  return sums ? OpKind::kSum : kind;
}

CombineKernels find_kernels(DataType type, OpKind op) {
  for (const auto find : {find_bit_kernels, find_float_kernels, find_half_kernels,
                          find_float8_kernels, find_integer_kernels}) {
    if (const CombineKernels found = find(type, op); found.plain != nullptr) return found;
  }
  return {};
}

ScaleKernel find_scale(DataType type, bool divide) {
  for (const auto find :
       {find_float_scale, find_half_scale, find_float8_scale, find_integer_scale}) {
    if (const ScaleKernel found = find(type, divide); found != nullptr) return found;
  }
  return nullptr;
}

/// What a user's function may expect of its pointers: complex numbers are aligned like their parts.
std::size_t alignment_of(DataType type) { return std::min<std::size_t>(size_of(type), 8); }

bool is_aligned(const void* pointer, DataType type) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment_of(type) == 0;
}

/// A user's operator overwrites its right operand, so `right` goes to `out` first; where `out` is
/// `left`, or a pointer is misaligned for its type, pieces pass through buffers on the stack.
void combine_user(const ReduceOp& op, DataType type, void* out, const void* left, const void* right,
                  std::size_t count) {
  const std::size_t width = size_of(type);
  if (out != left && is_aligned(out, type) && is_aligned(left, type)) {
    if (out != right) std::memcpy(out, right, count * width);
    op.function(left, out, count, type, op.context);
    return;
  }
  constexpr std::size_t kPieceBytes = 4096;
  alignas(kLineBytes) std::byte in[kPieceBytes];
  alignas(kLineBytes) std::byte inout[kPieceBytes];
  for (std::size_t done = 0; done < count * width;) {
    const std::size_t bytes = std::min(kPieceBytes, count * width - done);
    std::memcpy(in, static_cast<const std::byte*>(left) + done, bytes);
    std::memcpy(inout, static_cast<const std::byte*>(right) + done, bytes);
    op.function(in, inout, bytes / width, type, op.context);
    std::memcpy(static_cast<std::byte*>(out) + done, inout, bytes);
    done += bytes;
  }
}

}  // namespace

Result<Reduction> Reduction::make(DataType type, const ReduceOp& op, int ranks, Order order) {
  if (!processor_supported()) {
    return Status(ErrorCode::kUnsupported,
                  "this processor lacks SSE4.2 with AES and PCLMUL, the least that the reduction "
                  "kernels are built for");
  }
  const bool known =
      static_cast<int>(type) < kDataTypeCount && static_cast<int>(op.kind) < kOpKindCount;
  if (!known) {
    return Status(ErrorCode::kInvalidArgument,
                  "unknown element type " + std::to_string(static_cast<int>(type)) +
                      " or operator " + std::to_string(static_cast<int>(op.kind)) + ", limits " +
                      std::to_string(kDataTypeCount - 1) + " and " +
                      std::to_string(kOpKindCount - 1));
  }
  if (!is_meaningful(op.kind, type)) {
    return Status(ErrorCode::kInvalidArgument,
                  "operator " + std::string(name_of(op.kind)) + " has no meaning on " +
                      std::string(name_of(type)) + "; choose another operator or element type");
  }
  if (op.kind == OpKind::kUser && (op.function == nullptr || op.name == nullptr)) {
    return Status(ErrorCode::kInvalidArgument,
                  "a user operator needs a function and a name; make it with user_op()");
  }
  if (ranks < 1) {
    return Status(ErrorCode::kInvalidArgument,
                  "a reduction over " + std::to_string(ranks) + " ranks; it takes at least 1");
  }
  Reduction reduction;
  reduction.type_ = type;
  reduction.op_ = op;
  reduction.ranks_ = ranks;
  if (op.kind == OpKind::kUser) return reduction;
  reduction.prepares_ =
      op.kind == OpKind::kPremultipliedSum || is_logical(op.kind) || type == DataType::kBool;
  reduction.finishes_ = op.kind == OpKind::kAverage;
  const CombineKernels kernels = find_kernels(type, combination_of(op.kind));
  UNISONO_ASSERT(kernels.plain != nullptr, "a meaningful operator without a kernel");
  reduction.kernel_ = kernels.plain;
  reduction.kernel_streaming_ = kernels.streaming;
  if (order == Order::kExact && has_exact_sums(type, op.kind)) {
    reduction.exact_ = find_exact_kernel(type);
  }
  return reduction;
}

void Reduction::combine(void* out, const void* left, const void* right, std::size_t count) const {
  if (count == 0) return;
  if (kernel_ == nullptr) return combine_user(op_, type_, out, left, right, count);
  kernel_(out, left, right, count);
}

void Reduction::prepare(void* out, const void* in, std::size_t count) const {
  if (count == 0) return;
  if (!prepares_) {
    if (out != in) copy(out, in, count * element_bytes());
  } else if (op_.kind == OpKind::kPremultipliedSum) {
    find_scale(type_, false)(out, in, count, op_.scalar);
  } else {
    find_normalize(type_)(out, in, count);
  }
}

void Reduction::finish(void* inout, std::size_t count) const {
  if (!finishes_ || count == 0) return;
  find_scale(type_, true)(inout, inout, count, ranks_);
}

}  // namespace unisono::compute
