#include "plan/symbolic_run.h"

#include <map>
#include <string>
#include <tuple>

namespace unisono::plan {
namespace {

bool is_receive(StepKind kind) {
  return kind == StepKind::kReceive || kind == StepKind::kReceiveReduce;
}

void add(const RankSet& ranks, RankSet* to) {
  if (ranks.empty()) return;
  to->resize(ranks.size());
  *to |= ranks;
}

}  // namespace

SymbolicRun::SymbolicRun(std::span<const Plan> plans, SendSemantics semantics)
    : plans_(plans),
      eager_(semantics == SendSemantics::kEager),
      is_barrier_(plans.front().request.collective == Collective::kBarrier) {
  std::size_t steps = 0;
  for (const Plan& plan : plans) steps += plan.steps.size();
  nodes_.resize(steps);
  std::size_t first = 0;
  for (const Plan& plan : plans) {
    link_steps(plan.request.rank, first);
    first += plan.steps.size();
  }
  link_messages();
  load_inputs();
}

void SymbolicRun::link_steps(Rank rank, std::size_t first) {
  const Plan& plan = plans_[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    Node& node = nodes_[first + i];
    node.rank = rank;
    node.step = &plan.steps[i];
    node.waits = node.step->dependency_count;
    for (std::uint32_t d = 0; d < node.step->dependency_count; ++d) {
      const std::uint32_t before = plan.dependencies[node.step->dependency_first + d];
      nodes_[first + before].dependants.push_back(first + i);
    }
  }
}

void SymbolicRun::link_messages() {
  // The ends of every message in the order of its channel, by {sender, receiver, is the send}.
  std::map<std::tuple<Rank, Rank, bool>, std::vector<std::size_t>> channels;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.step->kind == StepKind::kSend) {
      channels[{node.rank, node.step->peer, true}].push_back(i);
    } else if (is_receive(node.step->kind)) {
      channels[{node.step->peer, node.rank, false}].push_back(i);
    }
  }
  for (const auto& [channel, ends] : channels) {
    const auto& [sender, receiver, is_send] = channel;
    const auto& others = channels.at({sender, receiver, !is_send});
    for (std::size_t k = 0; k < ends.size(); ++k) {
      nodes_[ends[k]].match = others[k];
      if (k == 0) continue;
      nodes_[ends[k - 1]].next_on_channel = ends[k];
      ++nodes_[ends[k]].waits;
    }
  }
}

void SymbolicRun::load_inputs() {
  for (const Plan& plan : plans_) {
    const PlanRequest& request = plan.request;
    const auto inputs = static_cast<std::uint32_t>(plan.input_blocks * request.chunks);
    const auto outputs = static_cast<std::uint32_t>(plan.output_blocks * request.chunks);
    maps_.emplace_back(request, inputs, outputs);
    values_.emplace_back(maps_.back().scratch_base() + plan.scratch_like.size(), kUndefined);
    Value* const own = cells(request.rank, {Buffer::kInput, 0, inputs});
    for (std::uint32_t i = 0; i < inputs; ++i) own[i] = symbols_.leaf(request.rank, i);
  }
}

Status SymbolicRun::run() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].waits == 0) ready_.push_back(i);
  }
  while (!ready_.empty()) {
    const std::size_t index = ready_.back();
    ready_.pop_back();
    start(index);
  }
  return complete_count_ == nodes_.size() ? Status() : stuck();
}

void SymbolicRun::start(std::size_t index) {
  Node& node = nodes_[index];
  node.started = true;
  if (node.next_on_channel != kNoNode) release(node.next_on_channel);
  if (node.step->kind == StepKind::kSend) {
    const Value* const source = cells(node.rank, node.step->source);
    node.message.assign(source, source + node.step->source.count);
    if (is_barrier_) {
      node.heard.resize(plans_.size());
      node.heard.set(static_cast<std::size_t>(node.rank));
    }
    if (nodes_[node.match].started) deliver(index, node.match);
    if (eager_ && !node.complete) finish(index);
  } else if (is_receive(node.step->kind)) {
    if (nodes_[node.match].started) deliver(node.match, index);
  } else {
    apply(node);
    finish(index);
  }
}

void SymbolicRun::deliver(std::size_t send, std::size_t receive) {
  Node& node = nodes_[receive];
  if (is_barrier_) add(nodes_[send].heard, &node.heard);
  const std::vector<Value>& message = nodes_[send].message;
  Value* const target = cells(node.rank, node.step->target);
  const Value* const source =
      node.step->kind == StepKind::kReceiveReduce ? cells(node.rank, node.step->source) : nullptr;
  for (std::size_t i = 0; i < message.size(); ++i) {
    if (source == nullptr) {
      target[i] = message[i];
    } else {
      target[i] = node.step->remote_first ? symbols_.combine(message[i], source[i])
                                          : symbols_.combine(source[i], message[i]);
    }
  }
  finish(receive);
  if (!nodes_[send].complete) finish(send);
}

void SymbolicRun::reduce_all(const Node& node) {
  const Plan& plan = plans_[static_cast<std::size_t>(node.rank)];
  Value* const target = cells(node.rank, node.step->target);
  std::vector<Value> operands;
  for (std::uint32_t i = 0; i < node.step->target.count; ++i) {
    operands.clear();
    for (const ChunkRange& source : sources_of(plan, *node.step)) {
      operands.push_back(cells(node.rank, source)[i]);
    }
    target[i] = symbols_.combine_all(operands);
  }
}

void SymbolicRun::apply(Node& node) {
  if (node.step->kind == StepKind::kReduceAll) return reduce_all(node);
  Value* const target = cells(node.rank, node.step->target);
  const Value* const source = cells(node.rank, node.step->source);
  for (std::uint32_t i = 0; i < node.step->target.count; ++i) {
    if (node.step->kind == StepKind::kCopy) {
      target[i] = source[i];
    } else {
      target[i] = node.step->remote_first ? symbols_.combine(source[i], target[i])
                                          : symbols_.combine(target[i], source[i]);
    }
  }
}

void SymbolicRun::finish(std::size_t index) {
  Node& node = nodes_[index];
  node.complete = true;
  ++complete_count_;
  for (const std::size_t dependant : node.dependants) {
    if (is_barrier_) add(node.heard, &nodes_[dependant].heard);
    release(dependant);
  }
}

void SymbolicRun::release(std::size_t index) {
  if (--nodes_[index].waits == 0) ready_.push_back(index);
}

Status SymbolicRun::stuck() const {
  for (const Node& node : nodes_) {
    if (node.complete || !node.started) continue;
    const bool sends = node.step->kind == StepKind::kSend;
    return {ErrorCode::kInvalidArgument,
            "the plans deadlock: " + std::to_string(nodes_.size() - complete_count_) + " of " +
                std::to_string(nodes_.size()) + " steps never complete, among them rank " +
                std::to_string(node.rank) +
                (sends ? " sending to rank " : " receiving from rank ") +
                std::to_string(node.step->peer),
            node.rank};
  }
  return {ErrorCode::kInvalidArgument, "the plans deadlock: no step can start"};
}

Value SymbolicRun::output(Rank rank, std::uint32_t chunk) const {
  const auto at = static_cast<std::size_t>(rank);
  return values_[at][maps_[at].first_cell({Buffer::kOutput, chunk, 1})];
}

std::vector<RankSet> SymbolicRun::heard() const {
  std::vector<RankSet> heard(plans_.size(), RankSet(plans_.size()));
  for (std::size_t rank = 0; rank < heard.size(); ++rank) heard[rank].set(rank);
  for (const Node& node : nodes_) add(node.heard, &heard[static_cast<std::size_t>(node.rank)]);
  return heard;
}

}  // namespace unisono::plan
