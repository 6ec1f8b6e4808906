// Binds the chunks of a plan to bytes: the only place that knows about uneven tails, v-variants,
// displacements and zero-length chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace unisono::plan {

struct ByteRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// One buffer cut into blocks, each block into `chunks` chunks of whole elements. Chunk c of a
/// block of n elements holds elements [n*c/chunks, n*(c+1)/chunks) (computed without overflow).
class BufferLayout {
 public:
  BufferLayout() = default;
  /// `count` elements cut into `blocks` nearly equal blocks laid end to end.
  static BufferLayout contiguous(std::size_t count, std::size_t element_bytes, int blocks,
                                 int chunks);
  /// Block b has counts[b] elements at element displacements[b].
  static BufferLayout with_blocks(std::span<const std::size_t> counts,
                                  std::span<const std::size_t> displacements,
                                  std::size_t element_bytes, int chunks);

  /// Bytes of a run of chunks without gaps: within a block always, across blocks only when these
  /// lie end to end. An empty run has none.
  ByteRange range(std::uint32_t first, std::uint32_t count) const;
  std::size_t chunk_count() const;

 private:
  std::size_t chunk_begin(std::uint32_t block, std::uint32_t chunk) const;  // in elements

  std::vector<std::size_t> block_first_;  // element displacement of each block
  std::vector<std::size_t> block_count_;
  std::size_t element_bytes_ = 0;
  std::uint32_t chunks_ = 1;
};

/// The layouts of a plan's three buffers. Scratch chunks lie end to end, each as long as the range
/// that Plan::scratch_like names and aligned to 64 bytes, except where a step uses a chunk as one
/// run with the chunk before it: such a run has no gaps, as its message has none.
struct ChunkLayout {
  BufferLayout input;
  BufferLayout output;
  std::vector<ByteRange> scratch;
  std::size_t scratch_bytes = 0;

  static ChunkLayout bind(const Plan& plan, BufferLayout input, BufferLayout output);
  ByteRange range(const ChunkRange& chunks) const;
};

}  // namespace unisono::plan
