// What may be done to bytes where they lie in host memory: copy, and the arithmetic of one call.
// Thread rule: values, usable from any thread. No allocation, no lock, no system call.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "unisono/types.h"

namespace unisono::compute {

/// memcpy that never pollutes caches where that pays: from `kStreamBytes` on (measured, out of
/// cache) it uses non-temporal stores, followed by a store fence.
void copy(void* out, const void* in, std::size_t bytes);
/// Always with non-temporal stores and a store fence (callers that know the total is large).
void copy_streaming(void* out, const void* in, std::size_t bytes);

/// out[i] = left[i] (op) right[i]; out may equal left or right, otherwise no overlap. Pointers
/// need no alignment. fp16, bf16 and fp8 compute in fp32 and round once. No FMA contraction.
using CombineKernel = void (*)(void* out, const void* left, const void* right, std::size_t count);
/// out = the sum of `n` inputs, at least 1, rounded once: what the exact sum rounds to. `out` may
/// be one of the inputs.
using ExactKernel = void (*)(void* out, const void* const* inputs, int n, std::size_t count);

/// The arithmetic of one call, resolved once: type and operator to kernels for this processor.
class Reduction {
 public:
  /// Errors: kInvalidArgument where is_meaningful() says no, or a user operator without function
  /// or name. `ranks` is the divisor of kAverage.
  /// `order` is what combine_tree() keeps: kExact, or else the canonical one.
  static Result<Reduction> make(DataType type, const ReduceOp& op, int ranks,
                                Order order = Order::kAny);

  /// out = left (op) right, `left` from lower ranks.
  void combine(void* out, const void* left, const void* right, std::size_t count) const;
  /// out = what the exact sum of the inputs rounds to, where the order and the type ask for that.
  /// Otherwise the canonical tree T(0, n) over inputs[0..n-1] in rank order (T(lo, hi) splits at lo
  /// + the largest power of two below hi - lo), each node rounded to the element type. Works in
  /// pieces that stay in the first-level cache. `out` may equal any one of the inputs. `streaming`:
  /// write `out` with non-temporal stores. n >= 1.
  void combine_tree(void* out, const void* const* inputs, int n, std::size_t count,
                    bool streaming) const;

  /// True when combinations of contiguous groups of a power of two of inputs, combined by
  /// combine_tree() in their turn, are what it makes of all inputs at once: the tree nests, and the
  /// exact sum of three or more does not.
  bool nests() const { return exact_ == nullptr; }
  /// True when a rank's input must be changed before it is combined (pre-multiplied sum; bool
  /// inputs are normalised to 0 or 1 for sum).
  bool prepares() const { return prepares_; }
  /// out = prepared input; out may equal in. A plain copy when !prepares().
  void prepare(void* out, const void* in, std::size_t count) const;
  /// True when the finished combination must still be divided (average).
  bool finishes() const { return finishes_; }
  /// In place.
  void finish(void* inout, std::size_t count) const;

  DataType type() const { return type_; }
  std::size_t element_bytes() const { return size_of(type_); }
  const ReduceOp& op() const { return op_; }

 private:
  Reduction() = default;

  DataType type_ = DataType::kFloat32;
  ReduceOp op_;
  int ranks_ = 1;
  bool prepares_ = false;
  bool finishes_ = false;
  CombineKernel kernel_ = nullptr;            // null for user operators
  CombineKernel kernel_streaming_ = nullptr;  // same result, non-temporal stores
  ExactKernel exact_ = nullptr;               // of three inputs or more; null: the canonical tree
};

/// The instruction set that run-time dispatch chose, "AVX3_ZEN4"; for `unisono info`.
const char* instruction_set();

}  // namespace unisono::compute
