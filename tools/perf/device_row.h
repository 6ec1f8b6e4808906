// What Measurement measures on device memory: the call on slot after slot, in a stream, checked by
// copying back. One thread per rank.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/perf/buffers.h"
#include "tools/perf/cases.h"
#include "tools/perf/device_buffers.h"
#include "tools/perf/rank_sync.h"
#include "tools/perf/slots.h"

namespace unisono::perf {

class DeviceRow {
 public:
  DeviceRow(Communicator& communicator, DeviceBuffers& device, Arena& arena, const Slots& slots,
            const Problem& problem);
  DeviceRow(const DeviceRow&) = delete;
  ~DeviceRow();

  /// Rewriting goes half a rotation ahead: what is rewritten is in the cache, and must be out of it
  /// again when its turn comes.
  void select(int k) {
    slot_ = slots_.in(k);
    ahead_ = slots_.in(k + slots_.count / 2);
  }
  void rewrite() { device_.copy(ahead_ + in_offset_, pristine_, in_bytes_); }
  void run() { problem_.measured->run(communicator_, problem_, in(), out()); }
  int slots() const { return slots_.count; }
  void sweep();

  void settle() { device_.finish(); }
  void start_clock() { device_.start_clock(); }
  double stop_clock() { return device_.stop_clock(); }

  /// Runs once and counts the elements of this rank's output that are not as they must be.
  std::uint64_t check(RankSync& sync);

 private:
  std::byte* in() { return slot_ + in_offset_; }
  std::byte* out() { return slot_ + out_offset_; }
  void write_pristine();
  std::uint64_t count_wrong(const Expected& part);

  Communicator& communicator_;
  DeviceBuffers& device_;
  Arena& arena_;
  const Slots& slots_;
  const Problem& problem_;
  std::size_t in_bytes_ = 0, in_offset_ = 0, out_offset_ = 0;
  std::byte* slot_ = nullptr;
  std::byte* ahead_ = nullptr;
  std::byte* pristine_ = nullptr;   // the input, on the device
  std::vector<std::byte> on_host_;  // one piece of what goes to the device or comes from it
};

}  // namespace unisono::perf
