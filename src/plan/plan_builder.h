// Appends the steps of one rank's plan and derives their dependencies, so that an algorithm says
// only what moves. Lives on the stack of an algorithm; one thread.
//
// Every chunk remembers its last writer and the readers since then; a new step gets edges for
// read after write, write after read and write after write, each step named once. Chunks that
// coincide because the call is in place are one memory here (CellMap).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/cell_map.h"
#include "plan/plan.h"

namespace unisono::plan {

using StepIndex = std::uint32_t;
inline constexpr StepIndex kNoStep = ~StepIndex{0};

class PlanBuilder {
 public:
  /// The numbers of blocks as in Plan; 0 for a buffer that this rank does not have.
  PlanBuilder(const PlanRequest& request, std::string_view algorithm, int input_blocks,
              int output_blocks);

  /// `blocks` whole blocks from block `first` on.
  ChunkRange input(int first, int blocks = 1) const { return run(Buffer::kInput, first, blocks); }
  ChunkRange output(int first, int blocks = 1) const { return run(Buffer::kOutput, first, blocks); }
  /// True when both ranges begin at the same memory, as input and output may in place.
  bool same_memory(const ChunkRange& a, const ChunkRange& b) const {
    return map_.first_cell(a) == map_.first_cell(b);
  }
  /// New scratch chunks, one for and as long as each chunk of `like`.
  ChunkRange add_scratch(const ChunkRange& like);

  StepIndex send(Rank peer, const ChunkRange& source);
  StepIndex receive(Rank peer, const ChunkRange& target);
  /// target = message (op) source when remote_first, else source (op) message.
  StepIndex receive_reduce(Rank peer, const ChunkRange& target, const ChunkRange& source,
                           bool remote_first);
  /// Appends nothing, and returns kNoStep, when both are the same memory.
  StepIndex copy(const ChunkRange& target, const ChunkRange& source);
  /// target = source (op) target when source_first, else target (op) source.
  StepIndex reduce(const ChunkRange& target, const ChunkRange& source, bool source_first);
  /// target = all operands at once, in their order.
  StepIndex reduce_all(const ChunkRange& target, std::span<const ChunkRange> operands);

  /// The next step also waits for `step`: order that no data impose. kNoStep is ignored.
  void order_after(StepIndex step);

  /// Room for this many steps; saves growing.
  void reserve(std::size_t steps) { plan_.steps.reserve(steps); }
  /// The plan; the builder is used up.
  Plan finish() &&;

 private:
  struct Cell {
    StepIndex writer = kNoStep;
    StepIndex reader = kNoStep;      // the first reader since `writer`
    std::uint32_t more_readers = 0;  // index + 1 into readers_ of a linked list; 0: no more
  };
  struct Reader {
    StepIndex step;
    std::uint32_t next;
  };

  ChunkRange run(Buffer buffer, int first, int blocks) const;
  StepIndex append(Step step);
  void depend_on(StepIndex step);
  void read(const ChunkRange& range, StepIndex step);
  void write(const ChunkRange& range, StepIndex step);
  Cell* cells_of(const ChunkRange& range);

  Plan plan_;
  CellMap map_;
  std::vector<Cell> cells_;
  std::vector<Reader> readers_;
  std::vector<StepIndex> last_dependant_;  // per step: the latest step that names it
  std::vector<StepIndex> order_after_;
  std::vector<std::uint32_t> sent_;      // per peer: messages so far
  std::vector<std::uint32_t> received_;  // per peer: messages so far
};

/// Chunks first .. first + count of `range`.
inline ChunkRange part(const ChunkRange& range, std::uint32_t first, std::uint32_t count = 1) {
  return {range.buffer, range.first + first, count};
}

}  // namespace unisono::plan
