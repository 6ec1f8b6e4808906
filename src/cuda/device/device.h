// The GPU of one rank: its memory, kernels, streams of the library's own, events, gates and staging
// memory.
//
// Thread rule: the engine's lock of its rank, but for what DeviceMemory and Kernels say of theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cuda/device/device_share.h"
#include "cuda/device/staging_pool.h"
#include "cuda/driver/cuda_api.h"
#include "cuda/driver/driver_section.h"
#include "cuda/memory/device_memory.h"

namespace unisono::device {

/// Of a uuid or a key, as ranks publish them.
std::string hex_text(std::span<const std::uint8_t> bytes);

/// Calls of a rank whose work waits in streams at a time, at gates and for kernels: fewer than a
/// hardware queue has room for, since a full one holds up whoever enqueues.
inline constexpr std::size_t kCallsAheadMax = 64;

class Device {
 public:
  /// Retains the device's primary context and loads the kernels. Errors name the device. Calls have
  /// at most `gates_max` gates at a time.
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<const cuda::CudaApi> api, int ordinal,
                                              std::size_t staging_bytes_max, std::size_t gates_max);
  ~Device();
  Device(const Device&) = delete;

  const cuda::CudaApi& api() const { return *api_; }
  const std::shared_ptr<const cuda::CudaApi>& shared_api() const { return api_; }
  cuda::DeviceMemory& memory() { return *memory_; }
  const cuda::Kernels& kernels() const { return share_->kernels(); }
  CUcontext context() const { return memory_->context(); }
  const std::shared_ptr<DeviceShare>& share() const { return share_; }
  /// DeviceMemory::out_of_reach(), by the texts of the uuids. Asks the driver.
  std::vector<std::string> out_of_reach() const;
  const std::string& name() const { return memory_->name(); }
  /// Streams may use memory of this rank and of its peers after all has been closed: it is left
  /// as it is then, until the process ends.
  void note_stuck() { is_stuck_ = true; }
  bool is_stuck() const { return is_stuck_; }
  /// Whether streams can wait for and write words of host memory.
  bool has_memops() const { return has_memops_; }
  /// The same for words of 64 bits.
  bool has_wide_memops() const { return has_wide_memops_; }

  /// Streams for copies to the host and back, of all ranks of the process. Nothing in them waits.
  CUstream outward_stream() const { return share_->outward_stream(); }
  CUstream inward_stream() const { return share_->inward_stream(); }
  /// An event without timing, from a pool.
  Result<CUevent> take_event();
  void give_back(CUevent event);

  StagingPool& staging() { return *staging_; }

  /// A word of host memory that streams wait for: `value` is what opens this use of it.
  struct Gate {
    std::uint32_t* word = nullptr;
    std::uint32_t value = 0;
  };
  Result<Gate> take_gate();
  void give_back(Gate gate);
  /// Calls whose work is in streams, of all communicators of this rank.
  void note_in_streams(int change) { in_streams_ += change; }
  bool has_room_in_streams() const { return in_streams_ < static_cast<int>(kCallsAheadMax); }
  /// A stream in which all of them were closed has no room that is certain for one more.
  bool has_enough_gates() const { return lent_gates_ >= gates_max_; }
  /// What some stream waits for may need this rank's next calls first.
  bool has_streams_that_wait() const { return lent_gates_ > 0 || in_streams_ > 0 || has_captured_; }
  /// Graphs of the caller's hold calls from here on, whose replays nobody counts.
  void note_captured() { has_captured_ = true; }
  /// Enqueues on `stream`: nothing behind goes on before the gate is open.
  Status enqueue_wait(CUstream stream, const Gate& gate) const;
  /// From the host: what waits at the gate goes on.
  static void open(const Gate& gate);

  /// True when everything before the event's record is over; an error of the device otherwise.
  Result<bool> is_over(CUevent event) const;
  /// An error of the device, after which nothing of it goes on.
  Status health() const;

 private:
  Device(std::shared_ptr<const cuda::CudaApi> api, std::size_t gates_max)
      : api_(std::move(api)), gates_max_(gates_max) {}
  void find_memops();
  bool try_memops();
  bool try_wide_memops();

  std::shared_ptr<const cuda::CudaApi> api_;
  const std::size_t gates_max_;
  std::unique_ptr<cuda::DeviceMemory> memory_;
  std::shared_ptr<DeviceShare> share_;
  std::unique_ptr<StagingPool> staging_;
  bool has_memops_ = false;
  bool has_wide_memops_ = false;
  bool is_stuck_ = false;
  std::vector<CUevent> events_;
  std::vector<std::byte*> pages_;  // of gates
  std::vector<Gate> gates_;
  std::size_t lent_gates_ = 0;
  int in_streams_ = 0;
  bool has_captured_ = false;
};

}  // namespace unisono::device
