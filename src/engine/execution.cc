#include "engine/execution.h"

#include <algorithm>

#include "base/direct_memory.h"

namespace unisono {
namespace {

using plan::Buffer;
using plan::StepKind;

std::size_t extent(const plan::BufferLayout& layout) {
  std::size_t end = 0;
  for (std::size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
    const plan::ByteRange range = layout.range(static_cast<std::uint32_t>(chunk), 1);
    end = std::max(end, range.offset + range.bytes);
  }
  return end;
}

// Buffers that a device's owner has offered are no memory of the host's.
void copy_locally(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (find_direct_memory(to, bytes) != nullptr || find_direct_memory(from, bytes) != nullptr) {
    return copy_bytes(to, from, bytes);
  }
  compute::copy(to, from, bytes);
}

// Where a step reads and writes, and how much.
PreparedStep bind_step(const plan::Step& from, const plan::ChunkLayout& layout) {
  PreparedStep to;
  to.kind = from.kind;
  to.remote_first = from.remote_first;
  to.peer = from.peer;
  to.message_index = from.message_index;
  const plan::ChunkRange& sized = from.kind == StepKind::kSend ? from.source : from.target;
  to.bytes = sized.count == 0 ? 0 : layout.range(sized).bytes;
  if (from.kind != StepKind::kSend && from.target.count > 0) {
    to.target_buffer = from.target.buffer;
    to.target_offset = layout.range(from.target).offset;
  }
  to.operand_first = from.operand_first;
  to.operand_count = from.operand_count;
  if (from.kind != StepKind::kReceive && from.source.count > 0) {
    to.source_buffer = from.source.buffer;
    to.source_offset = layout.range(from.source).offset;
  }
  return to;
}

void bind_steps(const plan::Plan& plan, const plan::ChunkLayout& layout, PreparedPlan* prepared) {
  prepared->steps.reserve(plan.steps.size());
  for (const plan::Step& step : plan.steps) prepared->steps.push_back(bind_step(step, layout));
  for (const plan::ChunkRange& operand : plan.operands) {
    prepared->operands.push_back({operand.buffer, layout.range(operand).offset});
  }
}

void list_dependencies(const plan::Plan& plan, PreparedPlan* prepared) {
  prepared->dependency_counts.reserve(plan.steps.size());
  for (const plan::Step& step : plan.steps) {
    if (step.dependency_count == 0) {
      prepared->ready_first.push_back(static_cast<std::uint32_t>(&step - plan.steps.data()));
    }
    prepared->dependency_counts.push_back(step.dependency_count);
  }
}

// Counts them: how many each step has, then where they stand, then which they are.
void list_successors(const plan::Plan& plan, PreparedPlan* prepared) {
  prepared->successors.resize(plan.dependencies.size());
  for (const std::uint32_t before : plan.dependencies) ++prepared->steps[before].successor_count;
  std::uint32_t next = 0;
  for (PreparedStep& step : prepared->steps) {
    step.successor_first = next;
    next += step.successor_count;
    step.successor_count = 0;
  }
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const plan::Step& step = plan.steps[i];
    for (std::uint32_t d = 0; d < step.dependency_count; ++d) {
      PreparedStep& before = prepared->steps[plan.dependencies[step.dependency_first + d]];
      prepared->successors[before.successor_first + before.successor_count++] =
          static_cast<std::uint32_t>(i);
    }
  }
}

void list_messages(PreparedPlan* prepared) {
  for (const PreparedStep& step : prepared->steps) {
    const bool sends = step.kind == StepKind::kSend;
    if (sends || receives(step.kind)) prepared->messages.push_back({step.peer, sends, step.bytes});
  }
  prepared->only_sends = !prepared->messages.empty() &&
                         std::all_of(prepared->messages.begin(), prepared->messages.end(),
                                     [](const PlannedMessage& message) { return message.sent; });
}

}  // namespace

PreparedPlan PreparedPlan::make(plan::Plan plan, plan::BufferLayout input,
                                plan::BufferLayout output) {
  PreparedPlan prepared;
  prepared.input_bytes = extent(input);
  const plan::ChunkLayout layout =
      plan::ChunkLayout::bind(plan, std::move(input), std::move(output));
  prepared.scratch_bytes = layout.scratch_bytes;
  bind_steps(plan, layout, &prepared);
  list_dependencies(plan, &prepared);
  list_successors(plan, &prepared);
  list_messages(&prepared);
  return prepared;
}

Status Execution::begin(const Call& call) {
  call_ = call;
  status_ = Status();
  const PreparedPlan& plan = *call.plan;
  UNISONO_ASSIGN(scratch_block_, scratch_.take(plan.scratch_bytes));
  const void* input = call.input;
  if (call.reduction != nullptr && call.reduction->prepares() && plan.input_bytes > 0 &&
      input != nullptr) {
    Result<ScratchPool::Block> prepared = scratch_.take(plan.input_bytes);
    if (!prepared) {
      end();
      return prepared.status();
    }
    prepared_block_ = std::move(*prepared);
    call.reduction->prepare(prepared_block_.data(), input,
                            plan.input_bytes / call.reduction->element_bytes());
    input = prepared_block_.data();
  }
  bases_[static_cast<int>(Buffer::kInput)] = static_cast<const std::byte*>(input);
  bases_[static_cast<int>(Buffer::kOutput)] = static_cast<const std::byte*>(call.output);
  bases_[static_cast<int>(Buffer::kScratch)] = scratch_block_.data();
  dependencies_left_.assign(plan.dependency_counts.begin(), plan.dependency_counts.end());
  states_.assign(plan.steps.size(), StepState::kIdle);
  ready_.reserve(plan.steps.size());
  ready_.assign(plan.ready_first.rbegin(), plan.ready_first.rend());
  operands_.resize(plan.operands.size());
  steps_left_ = plan.steps.size();
  return Status();
}

std::byte* Execution::target_of(const PreparedStep& step) const {
  return const_cast<std::byte*>(bases_[static_cast<int>(step.target_buffer)]) + step.target_offset;
}

const std::byte* Execution::source_of(const PreparedStep& step) const {
  return bases_[static_cast<int>(step.source_buffer)] + step.source_offset;
}

bool Execution::advance() {
  while (!ready_.empty()) {
    const std::uint32_t index = ready_.back();
    ready_.pop_back();
    states_[index] = StepState::kStarted;
    if (run(index)) complete(index);
  }
  if (steps_left_ > 0) return false;
  if (call_.reduction != nullptr && call_.reduction->finishes() && call_.finish_bytes > 0) {
    call_.reduction->finish(call_.output, call_.finish_bytes / call_.reduction->element_bytes());
  }
  end();
  return true;
}

// True when the step is complete at once.
bool Execution::run(std::uint32_t index) {
  const PreparedStep& step = call_.plan->steps[index];
  const MessageKey key{call_.communicator, FrameClass::kCollective, step.message_index,
                       call_.sequence};
  switch (step.kind) {
    case StepKind::kSend:
      return messenger_.send(world_rank(step.peer), key, call_.record,
                             {step.bytes == 0 ? nullptr : source_of(step), step.bytes}, *this,
                             index);
    case StepKind::kReceive:
    case StepKind::kReceiveReduce: {
      std::byte* target =
          step.kind == StepKind::kReceive && step.bytes > 0 ? target_of(step) : nullptr;
      return messenger_.receive(world_rank(step.peer), key, call_.record, target, step.bytes, *this,
                                index);
    }
    case StepKind::kCopy:
      if (step.bytes > 0) copy_locally(target_of(step), source_of(step), step.bytes);
      return true;
    case StepKind::kReduce: {
      if (step.bytes == 0) return true;
      const std::size_t count = step.bytes / call_.reduction->element_bytes();
      std::byte* target = target_of(step);
      const std::byte* source = source_of(step);
      call_.reduction->combine(target, step.remote_first ? source : target,
                               step.remote_first ? target : source, count);
      return true;
    }
    case StepKind::kReduceAll:
      reduce_all(step);
      return true;
  }
  return true;
}

void Execution::reduce_all(const PreparedStep& step) {
  for (std::uint32_t i = 0; i < step.operand_count; ++i) {
    const PreparedOperand& operand = call_.plan->operands[step.operand_first + i];
    operands_[i] = bases_[static_cast<int>(operand.buffer)] + operand.offset;
  }
  const std::size_t count = step.bytes / call_.reduction->element_bytes();
  if (count == 0) return;
  call_.reduction->combine_tree(target_of(step), operands_.data(),
                                static_cast<int>(step.operand_count), count, false);
}

void Execution::complete(std::uint32_t index) {
  const PreparedStep& step = call_.plan->steps[index];
  --steps_left_;
  states_[index] = StepState::kDone;
  for (std::uint32_t i = 0; i < step.successor_count; ++i) {
    const std::uint32_t next = call_.plan->successors[step.successor_first + i];
    if (--dependencies_left_[next] == 0) ready_.push_back(next);
  }
}

void Execution::message_done(std::uint32_t slot) { complete(slot); }

void Execution::message_piece(std::uint32_t slot, std::size_t offset,
                              std::span<const std::byte> piece) {
  const PreparedStep& step = call_.plan->steps[slot];
  if (step.kind != StepKind::kReceiveReduce) return;
  const std::size_t count = piece.size() / call_.reduction->element_bytes();
  std::byte* target = target_of(step) + offset;
  const std::byte* local = source_of(step) + offset;
  call_.reduction->combine(target, step.remote_first ? piece.data() : local,
                           step.remote_first ? local : piece.data(), count);
}

void Execution::fail(const Status& cause) {
  messenger_.cancel(*this);
  status_ = cause;
  end();
}

void Execution::end() {
  scratch_block_ = {};
  prepared_block_ = {};
  ready_.clear();
}

void Execution::waiting_for(std::vector<Rank>* ranks) const {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const PreparedStep& step = call_.plan->steps[i];
    if (states_[i] != StepState::kStarted) continue;
    if (receives(step.kind) || step.kind == StepKind::kSend) ranks->push_back(step.peer);
  }
  std::sort(ranks->begin(), ranks->end());
  ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
}

}  // namespace unisono
