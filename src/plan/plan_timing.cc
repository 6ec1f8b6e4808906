#include "plan/plan_timing.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "base/assert.h"
#include "base/collective.h"

namespace unisono::plan {
namespace {

// A step of one rank, as the estimate runs.
struct Node {
  Rank rank = 0;
  const Step* step = nullptr;
  std::uint32_t waits = 0;
  double ready = 0;       // when the last step it waits for was complete
  std::size_t bytes = 0;  // received, copied or reduced; a send's are those of its receive
  std::size_t match = 0;
  std::size_t dependant_first = 0;  // dependants_[first .. first + count)
  std::size_t dependant_count = 0;
};

// How often a step reads as many bytes as it writes and combines or copies them.
double passes_of(const Step& step) {
  return step.kind == StepKind::kReduceAll ? step.operand_count - 1.0 : 1.0;
}

// What happens at a time. Equal times in this order: what has been offered is taken first, and a
// node's link looks at what all its ranks offer.
enum class EventKind { kArrives, kRankSends, kNodeSends };

struct Event {
  double at = 0;
  EventKind kind{};
  std::size_t index = 0;  // of a send, a rank or a node

  bool operator>(const Event& other) const {
    return std::tie(at, kind, index) > std::tie(other.at, other.kind, other.index);
  }
};

class Estimate {
 public:
  Estimate(std::span<const Plan> plans, std::size_t bytes, const NetworkModel& network);
  PlanTiming run();

 private:
  // A time and what is due then, the earliest first; equal times in plan order.
  using Due = std::pair<double, std::size_t>;
  using DueQueue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

  void add_steps(std::span<const Plan> plans, std::size_t bytes);
  void find_dependants(std::span<const Plan> plans);
  void match_messages(std::span<const Plan> plans);
  void become_ready(std::size_t index);
  std::size_t node_of(const Node& node) const {
    return static_cast<std::size_t>(network_.node_of(node.rank));
  }
  bool leaves_node(const Node& send) const { return node_of(send) != node_of(nodes_[send.match]); }
  void happen(const Event& event);
  void send_from_rank(std::size_t rank, double now);
  void send_from_node(std::size_t node, double now);
  void receive(std::size_t send, double at);
  LinkModel link_of(const Node& send) const;
  std::size_t bytes_of_message(const Node& send) const { return nodes_[send.match].bytes; }
  void complete(std::size_t index, double at);

  NetworkModel network_;
  std::vector<Node> nodes_;  // the steps of rank 0, then those of rank 1 ...
  std::vector<std::size_t> dependants_;
  std::vector<double> send_free_;  // per rank: when its link is free for the next bytes
  std::vector<double> receive_free_;
  std::vector<double> node_send_free_;  // per node, the same
  std::vector<double> node_receive_free_;
  std::vector<std::size_t> unblocked_;
  std::vector<DueQueue> outgoing_;       // per rank: sends whose receives are ready as well
  std::vector<DueQueue> node_outgoing_;  // per node: what its ranks offer, one message of each
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  PlanTiming timing_;
};

Estimate::Estimate(std::span<const Plan> plans, std::size_t bytes, const NetworkModel& network)
    : network_(network),
      send_free_(plans.size()),
      receive_free_(plans.size()),
      node_send_free_(plans.size()),
      node_receive_free_(plans.size()),
      outgoing_(plans.size()),
      node_outgoing_(plans.size()) {
  add_steps(plans, bytes);
  find_dependants(plans);
  match_messages(plans);
}

// A layout names every block of every rank: those of all plans at once would be N^2 blocks.
void Estimate::add_steps(std::span<const Plan> plans, std::size_t bytes) {
  std::size_t steps = 0;
  for (const Plan& plan : plans) steps += plan.steps.size();
  nodes_.reserve(steps);
  for (const Plan& plan : plans) {
    const ChunkLayout layout = layout_for(plan, bytes);
    for (const Step& step : plan.steps) {
      const bool sends = step.kind == StepKind::kSend;
      nodes_.push_back({.rank = plan.request.rank,
                        .step = &step,
                        .waits = step.dependency_count,
                        .bytes = sends ? 0 : layout.range(step.target).bytes});
    }
  }
}

void Estimate::find_dependants(std::span<const Plan> plans) {
  const auto for_each = [&](const auto& visit) {
    std::size_t first = 0;
    std::size_t index = 0;
    for (const Plan& plan : plans) {
      for (const Step& step : plan.steps) {
        for (std::uint32_t d = 0; d < step.dependency_count; ++d) {
          visit(nodes_[first + plan.dependencies[step.dependency_first + d]], index);
        }
        ++index;
      }
      first = index;
    }
  };
  std::size_t dependants = 0;
  for_each([&](Node& earlier, std::size_t) { ++earlier.dependant_count; });
  for (Node& node : nodes_) {
    node.dependant_first = dependants;
    dependants += std::exchange(node.dependant_count, 0);
  }
  dependants_.resize(dependants);
  for_each([&](Node& earlier, std::size_t index) {
    dependants_[earlier.dependant_first + earlier.dependant_count++] = index;
  });
}

void Estimate::match_messages(std::span<const Plan> plans) {
  // The sends of a rank by channel and in order.
  struct Send {
    Rank to;
    std::uint32_t message_index;
    std::size_t node;
    bool operator<(const Send& other) const {
      return std::tie(to, message_index) < std::tie(other.to, other.message_index);
    }
  };
  std::vector<std::vector<Send>> sends(plans.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Step& step = *nodes_[i].step;
    if (step.kind != StepKind::kSend) continue;
    sends[static_cast<std::size_t>(nodes_[i].rank)].push_back({step.peer, step.message_index, i});
  }
  for (auto& of_rank : sends) std::sort(of_rank.begin(), of_rank.end());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Step& step = *nodes_[i].step;
    if (step.kind != StepKind::kReceive && step.kind != StepKind::kReceiveReduce) continue;
    const auto& of_peer = sends[static_cast<std::size_t>(step.peer)];
    const auto send = std::lower_bound(of_peer.begin(), of_peer.end(),
                                       Send{nodes_[i].rank, step.message_index, 0});
    UNISONO_ASSERT(send != of_peer.end() && send->to == nodes_[i].rank &&
                       send->message_index == step.message_index,
                   "a receive has no send");
    nodes_[i].match = send->node;
    nodes_[send->node].match = i;
    // A message is ready when both its ends are: the receive counts the send as one more.
    ++nodes_[i].waits;
  }
}

void Estimate::become_ready(std::size_t index) {
  Node& node = nodes_[index];
  switch (node.step->kind) {
    case StepKind::kSend: {
      Node& receive = nodes_[node.match];
      receive.ready = std::max(receive.ready, node.ready);
      if (--receive.waits == 0) unblocked_.push_back(node.match);
      break;
    }
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      outgoing_[static_cast<std::size_t>(node.step->peer)].push({node.ready, node.match});
      events_.push({node.ready, EventKind::kRankSends, static_cast<std::size_t>(node.step->peer)});
      break;
    case StepKind::kCopy:
    case StepKind::kReduce:
    case StepKind::kReduceAll:
      complete(index, node.ready + static_cast<double>(node.bytes) * passes_of(*node.step) *
                                       network_.reduce_per_byte);
      break;
  }
}

void Estimate::happen(const Event& event) {
  switch (event.kind) {
    case EventKind::kArrives:
      return receive(event.index, event.at);
    case EventKind::kRankSends:
      return send_from_rank(event.index, event.at);
    case EventKind::kNodeSends:
      return send_from_node(event.index, event.at);
  }
}

// A rank's link sends in the order in which messages became ready, one after the other.
void Estimate::send_from_rank(std::size_t rank, double now) {
  DueQueue& queue = outgoing_[rank];
  // Whatever is not due yet has an event of its own.
  if (queue.empty() || queue.top().first > now || send_free_[rank] > now) return;
  const std::size_t send = queue.top().second;
  queue.pop();
  if (leaves_node(nodes_[send])) {
    send_free_[rank] = std::numeric_limits<double>::infinity();
    node_outgoing_[node_of(nodes_[send])].push({now, send});
    events_.push({now, EventKind::kNodeSends, node_of(nodes_[send])});
  } else {
    receive(send, now);
    events_.push({send_free_[rank], EventKind::kRankSends, rank});
  }
}

// The node's link takes its time for a message, and the rank's link what it takes itself.
void Estimate::send_from_node(std::size_t node, double now) {
  DueQueue& queue = node_outgoing_[node];
  if (queue.empty() || node_send_free_[node] > now) return;
  const std::size_t index = queue.top().second;
  queue.pop();
  const Node& send = nodes_[index];
  const auto bytes = static_cast<double>(bytes_of_message(send));
  const auto rank = static_cast<std::size_t>(send.rank);
  const double node_takes = bytes * network_.between_nodes.per_byte;
  send_free_[rank] = now + bytes * link_of(send).per_byte;
  events_.push({send_free_[rank], EventKind::kRankSends, rank});
  node_send_free_[node] = now + node_takes;
  events_.push({node_send_free_[node], EventKind::kNodeSends, node});
  // The receiver's node makes no sender wait, and reserves its rank's link only when it can go on.
  double& receive_free = node_receive_free_[node_of(nodes_[send.match])];
  const double arrives = std::max(now, receive_free);
  receive_free = arrives + node_takes;
  events_.push({arrives, EventKind::kArrives, index});
}

LinkModel Estimate::link_of(const Node& send) const {
  if (!leaves_node(send)) return {network_.latency, network_.per_byte};
  return {network_.between_nodes.latency,
          std::max(network_.per_byte, network_.between_nodes.per_byte)};
}

// The receiver takes messages in the order in which they are offered. Who sends within the node
// waits for it.
void Estimate::receive(std::size_t send_index, double at) {
  const Node& send = nodes_[send_index];
  const std::size_t receive_index = send.match;
  const Node& receive = nodes_[receive_index];
  const std::size_t bytes = bytes_of_message(send);
  const LinkModel link = link_of(send);
  double& receive_free = receive_free_[static_cast<std::size_t>(receive.rank)];
  const double start = std::max(at, receive_free);
  receive_free = start + static_cast<double>(bytes) * link.per_byte;
  if (!leaves_node(send)) send_free_[static_cast<std::size_t>(send.rank)] = receive_free;
  const double end = receive_free + link.latency;
  timing_.messages.push_back({send.rank, receive.rank, send.step, receive.step, bytes, start, end});
  const bool reduces = receive.step->kind == StepKind::kReceiveReduce;
  const double work = reduces ? static_cast<double>(bytes) * network_.reduce_per_byte : 0;
  complete(send_index, end);
  complete(receive_index, end + work);
}

void Estimate::complete(std::size_t index, double at) {
  timing_.end = std::max(timing_.end, at);
  const Node& node = nodes_[index];
  for (const std::size_t dependant :
       std::span(dependants_).subspan(node.dependant_first, node.dependant_count)) {
    nodes_[dependant].ready = std::max(nodes_[dependant].ready, at);
    if (--nodes_[dependant].waits == 0) unblocked_.push_back(dependant);
  }
}

PlanTiming Estimate::run() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].waits == 0) unblocked_.push_back(i);
  }
  // Steps are taken in plan order where times are equal.
  std::reverse(unblocked_.begin(), unblocked_.end());
  while (true) {
    while (!unblocked_.empty()) {
      const std::size_t index = unblocked_.back();
      unblocked_.pop_back();
      become_ready(index);
    }
    if (events_.empty()) break;
    const Event next = events_.top();
    events_.pop();
    happen(next);
  }
  std::stable_sort(timing_.messages.begin(), timing_.messages.end(),
                   [](const auto& a, const auto& b) { return a.start < b.start; });
  return std::move(timing_);
}

}  // namespace

ChunkLayout layout_for(const Plan& plan, std::size_t bytes) {
  const PlanRequest& request = plan.request;
  const std::size_t block = bytes / static_cast<std::size_t>(request.ranks);
  const auto buffer = [&](int blocks) {
    const std::size_t length = facts_of(request.collective).is_one_vector()
                                   ? bytes
                                   : block * static_cast<std::size_t>(blocks);
    return BufferLayout::contiguous(length, 1, blocks, request.chunks);
  };
  return ChunkLayout::bind(plan, buffer(plan.input_blocks), buffer(plan.output_blocks));
}

PlanTiming time_plans(std::span<const Plan> plans, std::size_t bytes, const NetworkModel& network) {
  return Estimate(plans, bytes, network).run();
}

int rounds_of(std::span<const Plan> plans) {
  return static_cast<int>(time_plans(plans, 0, {.latency = 1}).end);
}

}  // namespace unisono::plan
