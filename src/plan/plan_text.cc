#include "plan/plan_text.h"

namespace unisono::plan {
namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }

std::string header_of(const Plan& plan) {
  const PlanRequest& request = plan.request;
  std::string text = std::string(unisono::name_of(request.collective)) + " " + plan.algorithm +
                     ", rank " + number(static_cast<std::uint64_t>(request.rank)) + " of " +
                     number(static_cast<std::uint64_t>(request.ranks));
  text += ", root " + number(static_cast<std::uint64_t>(request.root));
  text += ", " + number(static_cast<std::uint64_t>(request.chunks)) + " chunks a block";
  if (request.in_place) text += ", in place";
  if (!request.commutative) text += ", not commutative";
  if (request.order != Order::kAny) text += ", " + std::string(unisono::name_of(request.order));
  text += "\nblocks: " + std::to_string(plan.input_blocks) + " in, " +
          std::to_string(plan.output_blocks) + " out\n";
  return text;
}

// Scratch chunks, neighbours like neighbours on one line.
std::string scratch_of(const Plan& plan) {
  std::string text;
  const auto& like = plan.scratch_like;
  for (std::size_t first = 0; first < like.size();) {
    std::size_t end = first + 1;
    while (end < like.size() && like[end].buffer == like[first].buffer &&
           like[end].first == like[end - 1].first + like[end - 1].count) {
      ++end;
    }
    const ChunkRange run{Buffer::kScratch, static_cast<std::uint32_t>(first),
                         static_cast<std::uint32_t>(end - first)};
    const ChunkRange model{like[first].buffer, like[first].first,
                           like[end - 1].first + like[end - 1].count - like[first].first};
    text += text_of(run) + " like " + text_of(model) + "\n";
    first = end;
  }
  return text;
}

std::string dependencies_of(const Plan& plan, const Step& step) {
  std::string text;
  for (std::uint32_t d = 0; d < step.dependency_count; ++d) {
    text += d == 0 ? "  after " : " ";
    text += number(plan.dependencies[step.dependency_first + d]);
  }
  return text;
}

std::string operands_of(const Plan& plan, const Step& step) {
  std::string text;
  if (step.kind != StepKind::kReduceAll) return text;
  for (const ChunkRange& source : sources_of(plan, step)) {
    text += (text.empty() ? ": " : ", ") + text_of(source);
  }
  return text;
}

std::string sum_of(const Step& step, const std::string& other, const std::string& local) {
  return step.remote_first ? other + " + " + local : local + " + " + other;
}

}  // namespace

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
      return "send";
    case StepKind::kReceive:
      return "receive";
    case StepKind::kReceiveReduce:
      return "receive_reduce";
    case StepKind::kCopy:
      return "copy";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kReduceAll:
      return "reduce_all";
  }
  return "unknown";
}

std::string text_of(const ChunkRange& range) {
  static constexpr const char* kNames[] = {"input", "output", "scratch"};
  if (range.count == 0) return "nothing";
  std::string text = kNames[static_cast<std::size_t>(range.buffer)];
  text += "[" + number(range.first);
  if (range.count == 1) return text + "]";
  return text + ".." + number(range.first + range.count) + ")";
}

std::string text_of(const Step& step) {
  std::string text(name_of(step.kind));
  const std::string target = text_of(step.target);
  const std::string source = text_of(step.source);
  const std::string channel =
      " " + std::to_string(step.peer) + " #" + number(step.message_index) + " ";
  switch (step.kind) {
    case StepKind::kSend:
      return text + " to" + channel + source;
    case StepKind::kReceive:
      return text + " from" + channel + target;
    case StepKind::kReceiveReduce:
      return text + " from" + channel + target + " = " + sum_of(step, "message", source);
    case StepKind::kCopy:
      return text + " " + target + " = " + source;
    case StepKind::kReduce:
      return text + " " + target + " = " + sum_of(step, source, target);
    case StepKind::kReduceAll:
      return text + " " + target + " = all of its operands";
  }
  return text;
}

std::string text_of(const Plan& plan) {
  std::string text = header_of(plan) + scratch_of(plan);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const std::string index = number(i);
    text += std::string(index.size() < 4 ? 4 - index.size() : 0, ' ') + index + "  ";
    text += text_of(plan.steps[i]) + operands_of(plan, plan.steps[i]) +
            dependencies_of(plan, plan.steps[i]) + "\n";
  }
  return text;
}

}  // namespace unisono::plan
