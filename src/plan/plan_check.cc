// The static checks; running the plans is in plan_check_result.cc.
#include "plan/plan_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/cell_map.h"
#include "plan/plan_sizes.h"
#include "plan/plan_text.h"

namespace unisono::plan {
namespace {

Status fault(Rank rank, const std::string& message) {
  return {ErrorCode::kInvalidArgument, "plan of rank " + std::to_string(rank) + ": " + message,
          rank};
}

Status fault(const Plan& plan, std::size_t step, const std::string& message) {
  return fault(plan.request.rank, "step " + std::to_string(step) + " " + message);
}

bool has_target(const Step& step) { return step.kind != StepKind::kSend; }
// The checker's own idea of what a step reads, beside its target.
std::span<const ChunkRange> reads_of(const Plan& plan, const Step& step) {
  switch (step.kind) {
    case StepKind::kReceive:
      return {};
    case StepKind::kSend:
    case StepKind::kReceiveReduce:
    case StepKind::kCopy:
    case StepKind::kReduce:
      return {&step.source, 1};
    case StepKind::kReduceAll:
      return {plan.operands.data() + step.operand_first, step.operand_count};
  }
  return {};
}
bool is_message(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kReceive ||
         step.kind == StepKind::kReceiveReduce;
}

std::uint32_t chunks_of(const Plan& plan, Buffer buffer) {
  const int blocks = buffer == Buffer::kInput ? plan.input_blocks : plan.output_blocks;
  if (buffer == Buffer::kScratch) return static_cast<std::uint32_t>(plan.scratch_like.size());
  return static_cast<std::uint32_t>(blocks * plan.request.chunks);
}

bool lies_inside(const Plan& plan, const ChunkRange& range) {
  const std::uint32_t chunks = chunks_of(plan, range.buffer);
  return range.first <= chunks && range.count <= chunks - range.first;
}

CellMap cells_of(const Plan& plan) {
  return {plan.request, chunks_of(plan, Buffer::kInput), chunks_of(plan, Buffer::kOutput)};
}

Status check_request(const Plan& plan, const Plan& first, Rank rank, int ranks) {
  const PlanRequest& request = plan.request;
  if (request.ranks != ranks || request.rank != rank) {
    return fault(rank, "is made for rank " + std::to_string(request.rank) + " of " +
                           std::to_string(request.ranks) + ", not " + std::to_string(ranks));
  }
  if (request.root < 0 || request.root >= ranks || request.chunks < 1) {
    return fault(rank, "has root " + std::to_string(request.root) + " and " +
                           std::to_string(request.chunks) + " chunks");
  }
  if (request.collective != first.request.collective || request.root != first.request.root ||
      request.chunks != first.request.chunks || plan.algorithm != first.algorithm ||
      request.commutative != first.request.commutative || request.order != first.request.order) {
    return fault(rank, "is for another call than that of rank 0");
  }
  const auto wrong = [](int wanted, int has, int other) {
    return wanted >= 0 ? has != wanted : has < 1 || (other > 0 && has != other);
  };
  if (wrong(input_blocks_of(request), plan.input_blocks, plan.output_blocks) ||
      wrong(output_blocks_of(request), plan.output_blocks, plan.input_blocks)) {
    return fault(rank, "cuts the input into " + std::to_string(plan.input_blocks) +
                           " and the output into " + std::to_string(plan.output_blocks) +
                           " blocks");
  }
  if (is_one_vector(request.collective) && std::max(plan.input_blocks, plan.output_blocks) !=
                                               std::max(first.input_blocks, first.output_blocks)) {
    return fault(rank, "cuts the vector into other blocks than rank 0");
  }
  return {};
}

Status check_scratch(const Plan& plan) {
  for (const ChunkRange& like : plan.scratch_like) {
    if (like.buffer == Buffer::kScratch || like.count != 1 || !lies_inside(plan, like)) {
      return fault(plan.request.rank, "has a scratch chunk like " + text_of(like) +
                                          ", not like one chunk of input or output");
    }
  }
  return {};
}

Status check_range(const Plan& plan, std::size_t index, const ChunkRange& range) {
  if (!lies_inside(plan, range)) return fault(plan, index, "leaves its buffer: " + text_of(range));
  const auto chunks = static_cast<std::uint32_t>(plan.request.chunks);
  if (range.count > 1 && range.buffer != Buffer::kScratch &&
      has_uneven_blocks(plan.request.collective) &&
      range.first / chunks != (range.first + range.count - 1) / chunks) {
    return fault(plan, index, "crosses blocks that may lie apart: " + text_of(range));
  }
  return {};
}

Status check_operands(const Plan& plan, std::size_t index) {
  const Step& step = plan.steps[index];
  if (step.kind != StepKind::kReduceAll) return {};
  if (step.operand_count > 0 && step.operand_first <= plan.operands.size() &&
      step.operand_count <= plan.operands.size() - step.operand_first) {
    return {};
  }
  return fault(plan, index, "has no operands, or some outside the list");
}

Status check_source(const Plan& plan, std::size_t index, const CellMap& map,
                    const ChunkSizes& sizes, const ChunkRange& range) {
  const Step& step = plan.steps[index];
  const std::uint32_t target = map.first_cell(step.target);
  const std::uint32_t source = map.first_cell(range);
  const bool overlaps = source < target + step.target.count && target < source + range.count;
  const bool same = source == target &&
                    (step.kind == StepKind::kReceiveReduce || step.kind == StepKind::kReduceAll);
  if (overlaps && !same) {
    return fault(
        plan, index,
        "has overlapping source and target: " + text_of(range) + " and " + text_of(step.target));
  }
  const Rank rank = plan.request.rank;
  if (sizes.equal(rank, range, rank, step.target)) return {};
  return fault(plan, index,
               "has a source of another length than its target: " + text_of(range) + " and " +
                   text_of(step.target));
}

Status check_target(const Plan& plan, std::size_t index, const CellMap& map,
                    const ChunkSizes& sizes) {
  const Step& step = plan.steps[index];
  const std::uint32_t target = map.first_cell(step.target);
  if (step.target.buffer == Buffer::kInput) {
    for (std::uint32_t i = 0; i < step.target.count; ++i) {
      if (!map.is_output(target + i)) {
        return fault(plan, index, "writes the caller's input: " + text_of(step.target));
      }
    }
  }
  for (const ChunkRange& source : reads_of(plan, step)) {
    UNISONO_TRY(check_source(plan, index, map, sizes, source));
  }
  return {};
}

Status check_steps(const Plan& plan, const ChunkSizes& sizes) {
  const CellMap map = cells_of(plan);
  std::map<std::pair<Rank, bool>, std::uint32_t> messages;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    UNISONO_TRY(check_operands(plan, i));
    if (has_target(step)) UNISONO_TRY(check_range(plan, i, step.target));
    for (const ChunkRange& source : reads_of(plan, step)) {
      UNISONO_TRY(check_range(plan, i, source));
    }
    if (has_target(step)) UNISONO_TRY(check_target(plan, i, map, sizes));
    if (is_message(step)) {
      if (step.peer < 0 || step.peer >= plan.request.ranks || step.peer == plan.request.rank) {
        return fault(plan, i, "has peer " + std::to_string(step.peer));
      }
      const std::uint32_t expected = messages[{step.peer, step.kind == StepKind::kSend}]++;
      if (step.message_index != expected) {
        return fault(plan, i,
                     "has message index " + std::to_string(step.message_index) + ", not " +
                         std::to_string(expected));
      }
    }
    if (step.dependency_first > plan.dependencies.size() ||
        step.dependency_count > plan.dependencies.size() - step.dependency_first) {
      return fault(plan, i, "has dependencies outside the list");
    }
    for (std::uint32_t d = 0; d < step.dependency_count; ++d) {
      if (plan.dependencies[step.dependency_first + d] >= i) {
        return fault(plan, i, "depends on a step that is not before it");
      }
    }
  }
  return {};
}

// Whether a step waits for another, directly or through steps between them.
class StepOrder {
 public:
  explicit StepOrder(const Plan& plan) : plan_(plan), visited_(plan.steps.size(), 0) {}

  bool waits_for(std::uint32_t later, std::uint32_t earlier) {
    ++round_;
    open_.assign(1, later);
    while (!open_.empty()) {
      const Step& step = plan_.steps[open_.back()];
      open_.pop_back();
      for (std::uint32_t d = 0; d < step.dependency_count; ++d) {
        const std::uint32_t before = plan_.dependencies[step.dependency_first + d];
        if (before == earlier) return true;
        if (before < earlier || visited_[before] == round_) continue;
        visited_[before] = round_;
        open_.push_back(before);
      }
    }
    return false;
  }

 private:
  const Plan& plan_;
  std::vector<std::uint64_t> visited_;
  std::vector<std::uint32_t> open_;
  std::uint64_t round_ = 0;
};

// Who touched a cell since its last write, and that write.
struct Touch {
  std::int64_t writer = -1;
  std::vector<std::uint32_t> readers;
};

}  // namespace

Status check_structure(std::span<const Plan> plans) {
  const int ranks = static_cast<int>(plans.size());
  for (Rank rank = 0; rank < ranks; ++rank) {
    const Plan& plan = plans[static_cast<std::size_t>(rank)];
    UNISONO_TRY(check_request(plan, plans.front(), rank, ranks));
    UNISONO_TRY(check_scratch(plan));
  }
  const ChunkSizes sizes(plans);
  for (const Plan& plan : plans) UNISONO_TRY(check_steps(plan, sizes));
  return {};
}

Status check_channels(std::span<const Plan> plans) {
  using Channel = std::pair<Rank, Rank>;  // sender, receiver
  std::map<Channel, std::vector<const ChunkRange*>> sends;
  for (const Plan& plan : plans) {
    for (const Step& step : plan.steps) {
      if (step.kind == StepKind::kSend)
        sends[{plan.request.rank, step.peer}].push_back(&step.source);
    }
  }
  const ChunkSizes sizes(plans);
  std::map<Channel, std::size_t> received;
  for (const Plan& plan : plans) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      if (step.kind != StepKind::kReceive && step.kind != StepKind::kReceiveReduce) continue;
      const auto& channel = sends[{step.peer, plan.request.rank}];
      const std::size_t index = received[{step.peer, plan.request.rank}]++;
      const std::string name =
          "message " + std::to_string(index) + " from rank " + std::to_string(step.peer);
      if (index >= channel.size())
        return fault(plan, i, "waits for " + name + ", which is not sent");
      if (!sizes.equal(step.peer, *channel[index], plan.request.rank, step.target)) {
        return fault(plan, i,
                     "takes " + name + " to " + text_of(step.target) +
                         ", which has another length than its source " + text_of(*channel[index]));
      }
    }
  }
  for (const auto& [channel, messages] : sends) {
    if (received[channel] == messages.size()) continue;
    return fault(channel.first, "sends " + std::to_string(messages.size()) + " messages to rank " +
                                    std::to_string(channel.second) + ", which takes " +
                                    std::to_string(received[channel]));
  }
  return {};
}

Status check_hazards(const Plan& plan) {
  const CellMap map = cells_of(plan);
  std::vector<Touch> cells(map.scratch_base() + plan.scratch_like.size());
  StepOrder order(plan);
  const auto unordered = [&](std::uint32_t step, std::int64_t earlier, const ChunkRange& range) {
    return fault(
        plan, step,
        "touches " + text_of(range) + " without waiting for step " + std::to_string(earlier));
  };
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const auto ordered = [&](std::int64_t earlier) {
      return earlier < 0 || earlier == i || order.waits_for(i, static_cast<std::uint32_t>(earlier));
    };
    for (const ChunkRange& source : reads_of(plan, step)) {
      for (std::uint32_t c = 0; c < source.count; ++c) {
        Touch& cell = cells[map.first_cell(source) + c];
        if (!ordered(cell.writer)) return unordered(i, cell.writer, source);
        cell.readers.push_back(i);
      }
    }
    if (!has_target(step)) continue;
    for (std::uint32_t c = 0; c < step.target.count; ++c) {
      Touch& cell = cells[map.first_cell(step.target) + c];
      if (!ordered(cell.writer)) return unordered(i, cell.writer, step.target);
      for (const std::uint32_t reader : cell.readers) {
        if (!ordered(reader)) return unordered(i, reader, step.target);
      }
      cell.writer = i;
      cell.readers.clear();
    }
  }
  return {};
}

Status check_plans(std::span<const Plan> plans) {
  UNISONO_TRY(check_structure(plans));
  UNISONO_TRY(check_channels(plans));
  for (const Plan& plan : plans) UNISONO_TRY(check_hazards(plan));
  UNISONO_TRY(check_result(plans, SendSemantics::kRendezvous));
  return check_result(plans, SendSemantics::kEager);
}

}  // namespace unisono::plan
