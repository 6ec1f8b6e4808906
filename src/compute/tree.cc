// The inputs of many ranks to one: the exact sum, or the canonical tree in pieces that stay in the
// first-level cache.
// Thread rule: pure, usable from any thread; the stack is the only memory.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compute/compute.h"
#include "compute/kernels.h"

namespace unisono::compute {
namespace {

/// Values of inner nodes on their way to the root. A third of the smallest first-level cache in
/// use (48 KiB, 32 KiB), so that the pieces of the inputs pass through the rest.
constexpr std::size_t kScratchBytes = std::size_t{16} << 10;

const void* advance(const void* pointer, std::size_t bytes) {
  return static_cast<const std::byte*>(pointer) + bytes;
}

/// One piece of the inputs: `count` elements from `offset` bytes on.
struct Piece {
  const Reduction& reduction;
  FusedKernels fused;
  const void* const* inputs;
  std::size_t offset;
  std::size_t count;
  std::byte* scratch;
  std::size_t scratch_stride;

  /// The value of T(lo, hi): an input itself, or in scratch buffer `level`. Buffers from `level`
  /// on are overwritten, those below are not touched. A left child may use its parent's buffer,
  /// a right child gets the next one, so log2(ranks) buffers suffice.
  const void* node(int lo, int hi, int level) const {
    if (hi - lo == 1) return advance(inputs[lo], offset);
    std::byte* const value = scratch + static_cast<std::size_t>(level) * scratch_stride;
    if (const FusedKernel kernel = fused_for(hi - lo); kernel != nullptr) {
      run_fused(kernel, value, lo, hi);
      return value;
    }
    const int middle = split(lo, hi);
    const void* const left = node(lo, middle, level);
    const void* const right = node(middle, hi, level + 1);
    reduction.combine(value, left, right, count);
    return value;
  }

  FusedKernel fused_for(int ranks) const {
    const bool in_range = ranks >= kFusedRanksMin && ranks <= kFusedRanksMax;
    return in_range ? fused[static_cast<std::size_t>(ranks - kFusedRanksMin)] : nullptr;
  }

  void run_fused(FusedKernel kernel, void* out, int lo, int hi) const {
    const void* operands[kFusedRanksMax] = {};
    for (int i = lo; i < hi; ++i) operands[i - lo] = advance(inputs[i], offset);
    kernel(out, operands, count);
  }
};

/// Buffers that node() uses for T(0, n): ceil(log2(n)).
int levels_of(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

/// Elements before `out` begins a whole line, so that later pieces stream whole lines; 0 where it
/// already does or never will.
std::size_t count_to_line(const void* out, std::size_t width) {
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % kLineBytes;
  const std::size_t bytes = misaligned == 0 ? 0 : kLineBytes - misaligned;
  return bytes % width == 0 ? bytes / width : 0;
}

}  // namespace

void Reduction::combine_tree(void* out, const void* const* inputs, int n, std::size_t count,
                             bool streaming) const {
  const std::size_t width = element_bytes();
  if (n == 1) {
    if (out == inputs[0]) return;
    return streaming ? copy_streaming(out, inputs[0], count * width)
                     : copy(out, inputs[0], count * width);
  }
  const bool streams = streaming && kernel_streaming_ != nullptr;
  const auto root = [&](std::size_t offset, const void* left, const void* right,
                        std::size_t elements) {
    void* const to = static_cast<std::byte*>(out) + offset;
    streams ? kernel_streaming_(to, left, right, elements) : combine(to, left, right, elements);
  };
  if (n == 2) {
    root(0, inputs[0], inputs[1], count);  // two numbers are rounded once anyhow
  } else if (exact_ != nullptr) {
    exact_(out, inputs, n, count);
  } else {
    alignas(kLineBytes) std::byte scratch[kScratchBytes];
    const std::size_t stride =
        kScratchBytes / static_cast<std::size_t>(levels_of(n)) / kLineBytes * kLineBytes;
    const FusedKernels fused = find_fused_kernels(type_, op_.kind);
    const int middle = split(0, n);
    Piece piece{*this, fused, inputs, 0, 0, scratch, stride};
    std::size_t limit = streams ? count_to_line(out, width) : 0;
    for (std::size_t done = 0; done < count; done += piece.count) {
      if (limit == 0) limit = stride / width;
      piece.offset = done * width;
      piece.count = std::min(limit, count - done);
      limit = 0;
      const FusedKernel whole = streams ? nullptr : piece.fused_for(n);
      if (whole != nullptr) {
        piece.run_fused(whole, static_cast<std::byte*>(out) + piece.offset, 0, n);
        continue;
      }
      const void* const left = piece.node(0, middle, 0);
      const void* const right = piece.node(middle, n, 1);
      root(piece.offset, left, right, piece.count);
    }
  }
  if (streams) store_fence();
}

}  // namespace unisono::compute
