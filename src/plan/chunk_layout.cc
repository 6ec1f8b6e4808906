#include "plan/chunk_layout.h"

#include <utility>

#include "base/assert.h"

namespace unisono::plan {
namespace {

// floor(count * part / parts) without the product, which may exceed 64 bits.
std::size_t cut(std::size_t count, std::size_t part, std::size_t parts) {
  return count / parts * part + count % parts * part / parts;
}

constexpr std::size_t kScratchAlignment = 64;

std::size_t align_up(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// Which scratch chunks some step uses as one run with the chunk before them.
std::vector<bool> joined_chunks(const Plan& plan) {
  std::vector<bool> joined(plan.scratch_like.size(), false);
  const auto mark = [&](const ChunkRange& range) {
    if (range.buffer != Buffer::kScratch) return;
    for (std::uint32_t i = 1; i < range.count; ++i) joined[range.first + i] = true;
  };
  for (const Step& step : plan.steps) {
    mark(step.target);
    for (const ChunkRange& source : sources_of(plan, step)) mark(source);
  }
  return joined;
}

}  // namespace

BufferLayout BufferLayout::contiguous(std::size_t count, std::size_t element_bytes, int blocks,
                                      int chunks) {
  UNISONO_ASSERT(blocks >= 0 && chunks >= 1, "a layout needs blocks >= 0 and chunks >= 1");
  BufferLayout layout;
  layout.element_bytes_ = element_bytes;
  layout.chunks_ = static_cast<std::uint32_t>(chunks);
  const auto parts = static_cast<std::size_t>(blocks);
  layout.block_first_.resize(parts);
  layout.block_count_.resize(parts);
  for (std::size_t b = 0; b < parts; ++b) {
    layout.block_first_[b] = cut(count, b, parts);
    layout.block_count_[b] = cut(count, b + 1, parts) - layout.block_first_[b];
  }
  return layout;
}

BufferLayout BufferLayout::with_blocks(std::span<const std::size_t> counts,
                                       std::span<const std::size_t> displacements,
                                       std::size_t element_bytes, int chunks) {
  UNISONO_ASSERT(counts.size() == displacements.size() && chunks >= 1,
                 "every block needs a count and a displacement");
  BufferLayout layout;
  layout.element_bytes_ = element_bytes;
  layout.chunks_ = static_cast<std::uint32_t>(chunks);
  layout.block_first_.assign(displacements.begin(), displacements.end());
  layout.block_count_.assign(counts.begin(), counts.end());
  return layout;
}

std::size_t BufferLayout::chunk_begin(std::uint32_t block, std::uint32_t chunk) const {
  return block_first_[block] + cut(block_count_[block], chunk, chunks_);
}

std::size_t BufferLayout::chunk_count() const { return block_count_.size() * chunks_; }

ByteRange BufferLayout::range(std::uint32_t first, std::uint32_t count) const {
  if (count == 0) return {};
  UNISONO_ASSERT(first < chunk_count() && count <= chunk_count() - first,
                 "a chunk range lies outside its buffer");
  const std::uint32_t last = first + count - 1;
  const std::size_t begin = chunk_begin(first / chunks_, first % chunks_);
  const std::size_t end = chunk_begin(last / chunks_, last % chunks_ + 1);
  return {begin * element_bytes_, (end - begin) * element_bytes_};
}

ChunkLayout ChunkLayout::bind(const Plan& plan, BufferLayout input, BufferLayout output) {
  ChunkLayout layout;
  layout.input = std::move(input);
  layout.output = std::move(output);
  layout.scratch.reserve(plan.scratch_like.size());
  const std::vector<bool> joined = joined_chunks(plan);
  std::size_t end = 0;
  for (std::size_t i = 0; i < plan.scratch_like.size(); ++i) {
    const ChunkRange& like = plan.scratch_like[i];
    UNISONO_ASSERT(like.buffer != Buffer::kScratch, "a scratch chunk is like scratch");
    if (!joined[i]) end = align_up(end);
    const std::size_t bytes = layout.range(like).bytes;
    layout.scratch.push_back({end, bytes});
    end += bytes;
  }
  layout.scratch_bytes = end;
  return layout;
}

ByteRange ChunkLayout::range(const ChunkRange& chunks) const {
  switch (chunks.buffer) {
    case Buffer::kInput:
      return input.range(chunks.first, chunks.count);
    case Buffer::kOutput:
      return output.range(chunks.first, chunks.count);
    case Buffer::kScratch:
      break;
  }
  if (chunks.count == 0) return {};
  UNISONO_ASSERT(chunks.first < scratch.size() && chunks.count <= scratch.size() - chunks.first,
                 "a chunk range lies outside the scratch memory");
  const ByteRange& first = scratch[chunks.first];
  const ByteRange& last = scratch[chunks.first + chunks.count - 1];
  return {first.offset, last.offset + last.bytes - first.offset};
}

}  // namespace unisono::plan
