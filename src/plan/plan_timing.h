// Estimates how long the plans of all ranks take on a simple network, without one: for `unisono
// plan` and for tests of the algorithms' cost formulas. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "plan/chunk_layout.h"
#include "plan/plan.h"

namespace unisono::plan {

/// A message is under way for latency + bytes * per_byte.
struct LinkModel {
  double latency = 0;
  double per_byte = 0;
};

/// Each rank sends one message at a time and receives one at a time, both at once; latencies
/// overlap. Local work costs reduce_per_byte. What goes to another node takes the link of either
/// node as well, which all ranks there share, one message at a time each way: it moves at the rate
/// of the slowest of these links. A rank offers its node one message at a time; a node's link
/// serves them in the order in which they are offered.
struct NetworkModel {
  double latency = 0;
  double per_byte = 0;
  double reduce_per_byte = 0;
  int ranks_per_node = 0;   ///< consecutive ones; 0: all ranks are on one node
  LinkModel between_nodes;  ///< of a node's link and the way to any other

  int node_of(Rank rank) const { return ranks_per_node == 0 ? 0 : rank / ranks_per_node; }
};

struct TimedMessage {
  Rank sender = -1;
  Rank receiver = -1;
  const Step* send = nullptr;
  const Step* receive = nullptr;
  std::size_t bytes = 0;
  double start = 0;
  double end = 0;
};

struct PlanTiming {
  double end = 0;
  std::vector<TimedMessage> messages;  ///< by start time
};

/// How a payload of `bytes`, counted as nccl-tests count it, lies in the buffers of a plan: the
/// bytes of the whole vector, or of all N blocks where the collective has blocks.
ChunkLayout layout_for(const Plan& plan, std::size_t bytes);

/// Needs plans that pass check_plans. The pointers in the answer point into `plans`.
PlanTiming time_plans(std::span<const Plan> plans, std::size_t bytes, const NetworkModel& network);

/// Messages on the longest chain of messages that wait for one another.
int rounds_of(std::span<const Plan> plans);

}  // namespace unisono::plan
