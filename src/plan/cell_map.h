// Numbers the storage cells behind a plan's symbolic buffers, so that chunks which are the same
// memory when a call is in place get the same number. A value; safe from any thread.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace unisono::plan {

/// Where input and output coincide in place, by collective and role:
///   all_reduce, reduce and broadcast at the root, scan, exscan, all_to_all(_v): the same buffer.
///   all_gather(_v): the input is output block `rank`; gather(_v) at the root likewise.
///   reduce_scatter(_v): the output is input block `rank`; scatter(_v) at the root likewise.
/// A rank without both buffers has nothing to alias.
class CellMap {
 public:
  CellMap() = default;
  CellMap(const PlanRequest& request, std::uint32_t input_chunks, std::uint32_t output_chunks);

  std::uint32_t first_cell(const ChunkRange& range) const {
    return range.first + bases_[static_cast<std::size_t>(range.buffer)];
  }
  bool is_output(std::uint32_t cell) const {
    return cell >= bases_[1] && cell - bases_[1] < output_chunks_;
  }
  /// Cells of input and output together; scratch follows them.
  std::uint32_t scratch_base() const { return bases_[2]; }

 private:
  std::uint32_t bases_[3] = {0, 0, 0};  // of input, output, scratch
  std::uint32_t output_chunks_ = 0;
};

}  // namespace unisono::plan
