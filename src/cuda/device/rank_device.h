// The GPU of one rank as the rest of the library sees it, in builds with CUDA and without: no type
// of the driver's here.
//
// Thread rule: any thread. What the driver does to open the device or to free memory may wait for
// streams, so who has the engine's lock finds the device opened.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/result.h"
#include "config/config.h"
#include "unisono/types.h"

namespace unisono::device {

class Device;

/// How a rank comes by its device.
struct DeviceWish {
  /// Counts what CUDA_VISIBLE_DEVICES leaves; -1: the device whose context is current on this
  /// thread, else the only one this process uses already, else none until a device pointer comes.
  int ordinal = -1;
  int local_rank = 0;  ///< with UNISONO_CUDA=require and no other hint: this device
};

class RankDevice {
 public:
  virtual ~RankDevice() = default;

  /// Null where this process can have no device memory. With UNISONO_CUDA=require or a wished
  /// device everything that is missing is an error, that says what.
  static Result<std::unique_ptr<RankDevice>> open(const Config& config, const DeviceWish& wish);

  /// For the peers, as a value of Member::addresses: "process:device", without a device where none
  /// was chosen.
  virtual std::string published() const = 0;
  /// False on any doubt. Asks the driver: some 50 ns on host memory.
  virtual bool is_device_memory(const void* pointer) const = 0;
  /// The device, opened now if it was not: the one that owns `pointer`, when none was chosen.
  virtual Result<Device*> device_for(const void* pointer) = 0;
  /// The device that was opened, or null.
  virtual Device* device() const = 0;
  /// Why calls on device memory are refused; ok where they are not.
  virtual Status refusal() const = 0;

  virtual Result<void*> allocate(std::size_t bytes) = 0;
  /// kInvalidArgument when `pointer` is not from allocate().
  virtual Status release(void* pointer) = 0;
};

}  // namespace unisono::device
