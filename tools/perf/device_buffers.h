// The GPU of one rank of a measurement, as the tool uses it: memory of the tool's own, a stream, a
// clock in the stream. No type of the driver's here, so that builds without CUDA have it too.
// Calls throw Error. Owned by the measurement; one thread, whose current context it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "config/config.h"
#include "unisono/options.h"

namespace unisono::perf {

/// How many GPUs this process can use: at least one. kUnsupported says why there is none.
Result<int> count_devices(const CudaConfig& config);

class DeviceBuffers {
 public:
  /// `ordinal` is below count_devices().
  static Result<std::unique_ptr<DeviceBuffers>> open(const CudaConfig& config, int ordinal);
  virtual ~DeviceBuffers() = default;

  virtual CudaStream stream() const = 0;
  virtual int ordinal() const = 0;
  virtual const std::string& name() const = 0;
  /// The same number for the same GPU, whatever its ordinal on each rank.
  virtual std::uint64_t identity() const = 0;
  /// The last cache before the memory.
  virtual std::size_t cache_bytes() const = 0;
  virtual std::size_t free_bytes() const = 0;

  /// As cudaMalloc would.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;

  /// Both ends may be host or device memory. In the order of the stream; host memory must stay
  /// until finish().
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(std::byte* to, unsigned char value, std::size_t bytes) = 0;
  /// By the library's own kernel; both ends are device memory.
  virtual void move(void* to, const void* from, std::size_t bytes) = 0;
  virtual void launch_empty() = 0;
  /// Waits for all that is in the stream.
  virtual void finish() = 0;

  /// The time that the stream needs for what is put into it between the two, in microseconds, by
  /// events. stop_clock() waits for it.
  virtual void start_clock() = 0;
  virtual double stop_clock() = 0;
};

}  // namespace unisono::perf
