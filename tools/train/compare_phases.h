// One step taken apart: what each phase of dp and of ddp moves, and what gathered outputs take on
// the device that holds them.
//
// One thread at a time, as compare_run.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/train/compare_run.h"

namespace unisono::train::comparison {

/// A row of the table: what dp and ddp do in a phase, and the bytes that it moved between devices
/// in one step, over all of them.
struct Phase {
  std::string name;
  std::string dp, ddp;
  std::uint64_t dp_bytes = 0, ddp_bytes = 0;
};

/// One step of dp beside one of ddp.
struct StepAccount {
  /// The usual account: data loader, split, sharing of mini-batches and of parameters, forward,
  /// loss, gradients, update.
  std::vector<Phase> phases;
  /// What was measured besides: buffers, the average of the loss, and all that no row explains.
  std::vector<Phase> besides;
};

/// Where one step of dp keeps its outputs.
struct OutputUse {
  int output = 0;              ///< the output device
  std::uint64_t outputs = 0;   ///< bytes that gathering them took on the output device
  std::uint64_t gradient = 0;  ///< bytes that the loss' gradient took
  OutputMemory predicted;
};

/// Bytes of one dp step, phase by phase; `rest` is what no phase explains.
struct DpPhases {
  std::uint64_t inputs = 0, parameters = 0, buffers = 0, outputs = 0, output_gradients = 0,
                gradients = 0, rest = 0;
  OutputUse output;
};
DpPhases measure_dp_phases(const Workload& workload, int output);

/// `ddp` has been counted over its steps.
StepAccount account_of(const Workload& workload, const DpPhases& dp, const Cost& ddp);

/// What ddp does besides its gradients: calls and bytes of one step of one rank (or once).
struct Extra {
  std::string name;
  bool once = false;
  std::uint64_t payload = 0;  ///< bytes that each call is about, all calls together
  std::vector<TrafficReport> members;
};
/// Loss average and one-time broadcast from `ddp`; buffers, bitmap of used parameters and
/// synchronised batch norms from short runs of their own.
std::vector<Extra> measure_extras(const Workload& workload, const Cost& ddp);

/// Ranks on GPUs gather their outputs as objects: what the objects are together, and by how much
/// that raised a rank's device memory.
struct ObjectGather {
  std::uint64_t payload = 0, device_memory = 0;
};
ObjectGather measure_object_gather(const Workload& workload);

}  // namespace unisono::train::comparison
