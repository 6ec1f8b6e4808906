// A collective on device buffers as pieces of work: which elements of whose buffers become which,
// and which rank launches them. Pure functions: no driver, no pointer is followed.
//
// The single-pass slice owner (every input byte read once, every output byte written once): rank r
// reduces slice r of all inputs and stores it to slice r of all outputs. NCCL's symmetric kernels
// and TensorRT-LLM's two-shot work alike. A small all-reduce out of place, of ranks that each
// launch, is one-shot: every rank reads all inputs and writes its own output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/kernels/device_work.h"
#include "unisono/types.h"

namespace unisono::device {

/// One rank's part of the call, as the launching rank can reach it. Counts and displacements are
/// elements, with one entry per rank, and empty for collectives without them.
struct RankPart {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::span<const std::uint64_t> input_counts, input_displacements;
  std::span<const std::uint64_t> output_counts, output_displacements;
};

struct CollectiveParts {
  Collective collective = Collective::kBarrier;
  Rank root = 0;
  std::size_t count = 0;  ///< as in communicator.h; unused by collectives with counts
  std::size_t element_bytes = 1;
  std::span<const RankPart> ranks;
  /// Ranks that launch: work is divided among them. One of each GPU.
  std::span<const Rank> owners;
};

/// The pieces that `owner` launches, packed: each DeviceWork is one launch, and launches are
/// independent of each other (in-place calls included). Empty: nothing to do.
std::vector<cuda::DeviceWork> pieces_of(const CollectiveParts& parts, Rank owner);

}  // namespace unisono::device
