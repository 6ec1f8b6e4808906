// Where a rank, or the devices of a process, compute: the host or which GPU.
//
// Threads: one thread at a time.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/train/options.h"
#include "unisono/communicator.h"
#include "unisono/train/tensor.h"

namespace unisono::train {

/// The GPU of a rank by its place on this host, among those that CUDA_VISIBLE_DEVICES leaves:
/// --device-map, or its number. -1: the host.
int gpu_of_rank(const Options& options, int local_rank);
/// The first that this process computes on; -1: the host.
int first_gpu(const Options& options);
/// DataParallelOptions::gpus: --device-map, or the devices' names. Empty: the host.
std::vector<int> gpus_of_devices(const Options& options);

/// What hinders the first rank of this host as well, which tells.
class SharedFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The memory that this rank computes in. std::runtime_error names rank, GPU and remedy; it is a
/// SharedFailure where there is no GPU for any rank of this host.
std::unique_ptr<DeviceMemory> open_memory(const Options& options);

/// Who computes on which GPU: a rank of `world`, or a device of the process, by its name.
struct Seat {
  int rank = 0, world = 1, local_rank = 0, gpu = 0;
};
/// Collective; by rank, the same on all of them. Empty on the host.
std::vector<Seat> gather_seats(const Options& options, Communicator& world);

}  // namespace unisono::train
