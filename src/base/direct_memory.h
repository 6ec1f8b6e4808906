// Buffers of devices that transports move where they lie. Who starts such a transfer offers the
// buffer here for as long as it lasts; a transport whose hardware can reach it asks how to register
// it, and whoever has to copy a piece by hand (a frame too small for the hardware, one that was
// cancelled, a plan's own block) copies it through here. A pointer tells: while a buffer is
// offered, nothing of the host's has its addresses.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono {

/// Whether all of the bytes at `begin` are of `whole`.
bool is_within(std::span<const std::byte> whole, const void* begin, std::size_t bytes);

/// One buffer, within one allocation of a device.
class DirectMemory {
 public:
  DirectMemory(std::span<const std::byte> bytes, std::uint64_t allocation)
      : bytes_(bytes), allocation_(allocation) {}
  virtual ~DirectMemory() = default;
  DirectMemory(const DirectMemory&) = delete;
  DirectMemory& operator=(const DirectMemory&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Never 0, and never that of another allocation of this process.
  std::uint64_t allocation() const { return allocation_; }

  /// Whether the byte at `address` still belongs to the allocation of that number.
  virtual bool is_alive(const std::byte* address, std::uint64_t allocation) const = 0;
  /// A dma-buf of the pages around `piece`; `*offset` is where the piece begins in it.
  virtual Result<UniqueFd> dma_buf(std::span<const std::byte> piece, std::uint64_t* offset) = 0;
  /// memcpy where one side, or both, lie in memory of this device. Over when it returns.
  virtual Status copy(void* to, const void* from, std::size_t bytes) = 0;

  /// Of copy_bytes(): the first that went wrong.
  void note_failure(const Status& failure);
  Status failure() const;

 private:
  const std::span<const std::byte> bytes_;
  const std::uint64_t allocation_;
  mutable std::mutex mutex_;
  Status failure_;
};

/// From here on find_direct_memory() finds it, until it is withdrawn.
void offer_direct_memory(std::shared_ptr<DirectMemory> memory);
void withdraw_direct_memory(const DirectMemory& memory);

/// What holds all of the bytes, or null: host memory, or nobody's. Most of that is told without a
/// lock.
std::shared_ptr<DirectMemory> find_direct_memory(const void* begin, std::size_t bytes);

/// memcpy for buffers that may be offered ones. What fails is noted by all that hold the bytes.
void copy_bytes(void* to, const void* from, std::size_t bytes);

}  // namespace unisono
