// A buffer of the users' on a device, as transports see it that move it where it lies (GPUDirect).
// Thread rule: that of DirectMemory.
#pragma once

#include <memory>
#include <mutex>

#include "base/direct_memory.h"
#include "cuda/memory/device.h"
#include "cuda/memory/pointer_query.h"

namespace unisono::cuda {

/// A stream of a device's for the copies that transports make by hand. Any thread, one at a time.
class CopyStream {
 public:
  static Result<std::shared_ptr<CopyStream>> make(const Device& device);
  explicit CopyStream(const Device& device) : device_(device) {}
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  Status copy(void* to, const void* from, std::size_t bytes);
  const Device& device() const { return device_; }

 private:
  const Device device_;  // its own: a buffer may be the last that knows of it
  std::mutex mutex_;
  CUstream stream_ = nullptr;
};

class DirectBuffer final : public DirectMemory {
 public:
  DirectBuffer(std::shared_ptr<CopyStream> copy_stream, std::span<const std::byte> bytes,
               std::uint64_t allocation)
      : DirectMemory(bytes, allocation), stream_(std::move(copy_stream)) {}

  bool is_alive(const std::byte* address, std::uint64_t allocation) const override;
  Result<UniqueFd> dma_buf(std::span<const std::byte> piece, std::uint64_t* offset) override;
  Status copy(void* to, const void* from, std::size_t bytes) override {
    return stream_->copy(to, from, bytes);
  }

 private:
  std::shared_ptr<CopyStream> stream_;
};

/// Why network devices cannot move memory of this device, or empty.
std::string direct_missing(const Device& device);
/// A dma-buf of the whole pages around `bytes` at `pointer`, memory of the device's, for a network
/// device to register; `*offset` is where `pointer` lies in it.
Result<UniqueFd> make_dma_buf(const Device& device, const void* pointer, std::size_t bytes,
                              std::uint64_t* offset);

}  // namespace unisono::cuda
