// Trains a workload with one strategy for some steps and counts what each of them took.
//
// One thread at a time; the strategies start threads of their own. What a strategy throws comes out
// as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/train/compare_workload.h"
#include "unisono/traffic.h"

namespace unisono::train::comparison {

/// Steps that are counted, and steps before them: at least 2, after which the buckets of ddp have
/// their final form.
struct Span {
  std::size_t warm_up = 3, steps = 100;
};

/// Of one device or rank, over all counted steps.
struct Member {
  std::size_t samples = 0;  ///< per step
  TrafficReport traffic;
  std::size_t peak_memory = 0;  ///< bytes of tensors
  /// Ranks only, counted apart: what goes over the control communicator and the one of the
  /// synchronised batch norms, and what making the replica took.
  TrafficReport control, statistics, once;
};

struct Cost {
  std::string strategy;
  std::size_t samples = 0;  ///< per step, of all members
  std::size_t steps = 0;
  double seconds = 0;
  double loss = 0;  ///< of the last step
  /// Between GPUs of one host kernels read peers' memory: nothing is sent that could be counted.
  bool is_on_gpus = false;
  std::uint64_t threads_started = 0;
  std::vector<Member> members;
  /// What the theory says of one step, member by member.
  std::vector<TrafficReport> predicted;
};

/// The strategies of one process.
struct DeviceStrategy {
  std::string name = "dp";
  int devices = 2;
  int output = 0;
  std::optional<std::size_t> first_batch;
  bool parallel_loss = false;
};
Cost run_devices(const Workload& workload, const DeviceStrategy& strategy, const Span& span);

/// The strategies of ranks: a static graph, rings, and nothing that can be left away, unless it is
/// asked for to be counted.
struct RankStrategy {
  std::string name = "ddp";
  bool zero = false;
  bool broadcast_buffers = false;
  bool find_unused = false;
  bool sync_batch_norm = false;
};
Cost run_ranks(const Workload& workload, const RankStrategy& strategy, const Span& span);

/// True where every member moved in every step what was predicted, call by call and byte by byte;
/// on GPUs where it made the calls.
bool is_as_predicted(const Cost& cost);
/// One entry per member: Member::traffic.
std::vector<TrafficReport> traffic_of(const Cost& cost);

}  // namespace unisono::train::comparison
