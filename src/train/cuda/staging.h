// What the host hands to the device on its way there: a copy in page-locked memory, so that the
// caller's is free at once and nobody waits for the work before it. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "train/cuda/gpu.h"

namespace unisono::train {

class Staging {
 public:
  static constexpr std::size_t kSlots = 4;
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
  /// So many take no waiting for the device, if it keeps up.
  static constexpr std::size_t kBytes = kSlots * kSlotBytes;

  explicit Staging(std::shared_ptr<const Gpu> gpu);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Copies in the order of `stream`; `host` is free when it returns. Waits only where more than
  /// the slots hold is under way.
  void write(CUstream stream, const void* host, std::size_t bytes, void* to);

 private:
  void close() noexcept;

  const std::shared_ptr<const Gpu> gpu_;
  std::byte* memory_ = nullptr;
  std::array<CUevent, kSlots> used_{};  ///< of each slot: its last copy is done
  std::size_t next_ = 0;
};

}  // namespace unisono::train
