// What the captured calls of one communicator of processes leave behind in CUDA graphs of the
// caller's: flags, an event of each, and mappings of peers' memory. Kept as long as the
// communicator, because nobody tells when a graph is gone.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "cuda/device/device.h"
#include "cuda/synchronisation/graph_flags.h"

namespace unisono {

class CapturedCalls {
 public:
  CapturedCalls(device::Device& device, int ranks, Rank rank)
      : device_(device), flags_(device, ranks, rank) {}
  ~CapturedCalls();
  CapturedCalls(const CapturedCalls&) = delete;

  device::GraphFlags& flags() { return flags_; }
  const device::GraphFlags& flags() const { return flags_; }
  /// The peer's buffer stays mapped where DeviceMemory::open() has put it.
  Status keep(const cuda::BufferTicket& ticket);
  /// Calls in one graph run one behind the other, whichever streams they were captured from:
  /// `stream` comes after the graph's call before.
  Status begin(CUstream stream, std::uint64_t capture);
  /// `stream` has all of the call that began there: the graph's next call comes after it.
  Status end(CUstream stream, std::uint64_t capture);

 private:
  /// Process, number and base of an allocation.
  using Allocation = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

  device::Device& device_;
  device::GraphFlags flags_;
  std::set<Allocation> known_;
  std::vector<std::shared_ptr<void>> kept_;
  std::map<std::uint64_t, CUevent> last_;  // by capture, behind its latest call
};

}  // namespace unisono
