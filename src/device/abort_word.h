// A word of page-locked memory that kernels look at when they begin: once it is set, those that
// have not begun move nothing. Set by the host alone, so that no stream can hold that up.
//
// Thread rule: set() any thread.
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
  const std::uint32_t* address() const { return word_; }
  void set();

 private:
  std::shared_ptr<DeviceShare> share_;
  std::uint32_t* word_ = nullptr;
};

}  // namespace unisono::device
