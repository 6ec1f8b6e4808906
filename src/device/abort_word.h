// A word of device memory that kernels look at when they begin: once it is set, those that have not
// begun move nothing. In the device's own memory because every block of every launch reads it.
//
// Thread rule: set() any thread, one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/device_share.h"

namespace unisono::device {

class AbortWord {
 public:
  AbortWord() = default;
  /// Not set. Errors: the driver's.
  static Result<AbortWord> take(std::shared_ptr<DeviceShare> share);
  AbortWord(AbortWord&& other) noexcept;
  AbortWord& operator=(AbortWord&& other) noexcept;
  /// No kernel looks at it any more.
  ~AbortWord();

  /// For DeviceWork::abort.
  const std::uint32_t* address() const { return reinterpret_cast<const std::uint32_t*>(word_); }
  /// Returns when kernels see it; false where the device did not get to it for a long time. The
  /// first call decides.
  bool set();

 private:
  std::shared_ptr<DeviceShare> share_;
  CUdeviceptr word_ = 0;
  bool is_set_ = false;
};

}  // namespace unisono::device
