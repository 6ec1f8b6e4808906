#include "plan/plan_builder.h"

#include <utility>

#include "base/assert.h"

namespace unisono::plan {

PlanBuilder::PlanBuilder(const PlanRequest& request, std::string_view algorithm, int input_blocks,
                         int output_blocks)
    : map_(request, static_cast<std::uint32_t>(input_blocks * request.chunks),
           static_cast<std::uint32_t>(output_blocks * request.chunks)),
      cells_(map_.scratch_base()),
      sent_(static_cast<std::size_t>(request.ranks)),
      received_(static_cast<std::size_t>(request.ranks)) {
  plan_.request = request;
  plan_.algorithm = algorithm;
  plan_.input_blocks = input_blocks;
  plan_.output_blocks = output_blocks;
}

ChunkRange PlanBuilder::run(Buffer buffer, int first, int blocks) const {
  const auto chunks = static_cast<std::uint32_t>(plan_.request.chunks);
  return {buffer, static_cast<std::uint32_t>(first) * chunks,
          static_cast<std::uint32_t>(blocks) * chunks};
}

ChunkRange PlanBuilder::add_scratch(const ChunkRange& like) {
  const ChunkRange added{Buffer::kScratch, static_cast<std::uint32_t>(plan_.scratch_like.size()),
                         like.count};
  for (std::uint32_t i = 0; i < like.count; ++i) plan_.scratch_like.push_back(part(like, i));
  cells_.resize(cells_.size() + like.count);
  return added;
}

StepIndex PlanBuilder::send(Rank peer, const ChunkRange& source) {
  return append({.kind = StepKind::kSend, .peer = peer, .target = {}, .source = source});
}

StepIndex PlanBuilder::receive(Rank peer, const ChunkRange& target) {
  return append({.kind = StepKind::kReceive, .peer = peer, .target = target, .source = {}});
}

StepIndex PlanBuilder::receive_reduce(Rank peer, const ChunkRange& target, const ChunkRange& source,
                                      bool remote_first) {
  return append({.kind = StepKind::kReceiveReduce,
                 .remote_first = remote_first,
                 .peer = peer,
                 .target = target,
                 .source = source});
}

StepIndex PlanBuilder::copy(const ChunkRange& target, const ChunkRange& source) {
  if (same_memory(target, source)) return kNoStep;
  return append({.kind = StepKind::kCopy, .target = target, .source = source});
}

StepIndex PlanBuilder::reduce(const ChunkRange& target, const ChunkRange& source,
                              bool source_first) {
  return append({.kind = StepKind::kReduce,
                 .remote_first = source_first,
                 .target = target,
                 .source = source});
}

StepIndex PlanBuilder::reduce_all(const ChunkRange& target, std::span<const ChunkRange> operands) {
  const auto first = static_cast<std::uint32_t>(plan_.operands.size());
  plan_.operands.insert(plan_.operands.end(), operands.begin(), operands.end());
  return append({.kind = StepKind::kReduceAll,
                 .target = target,
                 .source = {},
                 .operand_first = first,
                 .operand_count = static_cast<std::uint32_t>(operands.size())});
}

void PlanBuilder::order_after(StepIndex step) {
  if (step != kNoStep) order_after_.push_back(step);
}

StepIndex PlanBuilder::append(Step step) {
  const auto index = static_cast<StepIndex>(plan_.steps.size());
  last_dependant_.push_back(kNoStep);
  step.dependency_first = static_cast<std::uint32_t>(plan_.dependencies.size());
  if (step.kind == StepKind::kSend || receives(step.kind)) {
    UNISONO_ASSERT(
        step.peer >= 0 && step.peer < plan_.request.ranks && step.peer != plan_.request.rank,
        "a message needs another rank of the communicator");
    auto& messages = step.kind == StepKind::kSend ? sent_ : received_;
    step.message_index = messages[static_cast<std::size_t>(step.peer)]++;
  }
  for (const StepIndex earlier : order_after_) depend_on(earlier);
  order_after_.clear();
  // Reads before writes: a step that updates a chunk is not a reader that its own write waits for.
  const bool updates = step.kind == StepKind::kReduce;
  for (const ChunkRange& source : sources_of(plan_, step)) read(source, index);
  if (updates) read(step.target, index);
  if (step.kind != StepKind::kSend) write(step.target, index);
  step.dependency_count =
      static_cast<std::uint32_t>(plan_.dependencies.size()) - step.dependency_first;
  plan_.steps.push_back(step);
  return index;
}

// The step being appended is last_dependant_.size() - 1; it names each earlier step once.
void PlanBuilder::depend_on(StepIndex step) {
  const auto current = static_cast<StepIndex>(last_dependant_.size() - 1);
  if (step == current || last_dependant_[step] == current) return;
  last_dependant_[step] = current;
  plan_.dependencies.push_back(step);
}

PlanBuilder::Cell* PlanBuilder::cells_of(const ChunkRange& range) {
  const std::uint32_t first = map_.first_cell(range);
  UNISONO_ASSERT(first <= cells_.size() && range.count <= cells_.size() - first,
                 "a step names chunks outside its buffers");
  return cells_.data() + first;
}

void PlanBuilder::read(const ChunkRange& range, StepIndex step) {
  Cell* const cells = cells_of(range);
  for (std::uint32_t i = 0; i < range.count; ++i) {
    Cell& cell = cells[i];
    if (cell.writer != kNoStep) depend_on(cell.writer);
    if (cell.reader == kNoStep) {
      cell.reader = step;
    } else {
      readers_.push_back({step, cell.more_readers});
      cell.more_readers = static_cast<std::uint32_t>(readers_.size());
    }
  }
}

void PlanBuilder::write(const ChunkRange& range, StepIndex step) {
  Cell* const cells = cells_of(range);
  for (std::uint32_t i = 0; i < range.count; ++i) {
    Cell& cell = cells[i];
    // Readers waited for the writer already, so the edge to the writer is theirs.
    if (cell.reader != kNoStep) {
      depend_on(cell.reader);
      for (std::uint32_t at = cell.more_readers; at != 0; at = readers_[at - 1].next) {
        depend_on(readers_[at - 1].step);
      }
    } else if (cell.writer != kNoStep) {
      depend_on(cell.writer);
    }
    cell = {step, kNoStep, 0};
  }
}

Plan PlanBuilder::finish() && {
  UNISONO_ASSERT(order_after_.empty(), "order_after() names an order for no step");
  return std::move(plan_);
}

}  // namespace unisono::plan
