// A process of its own with device memory, which does what a test tells it: the other end of
// whatever ranks of different processes do. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cuda/memory/device_memory.h"
#include "tests/support/child_process.h"

namespace unisono::test {

struct OwnerRequest;
struct OwnerReply;

class MemoryOwner {
 public:
  /// It opens device `ordinal` of a driver with this environment.
  explicit MemoryOwner(const std::vector<std::string>& environment = {}, int ordinal = 0);

  /// DeviceMemory's calls there.
  Result<void*> allocate(std::size_t bytes);
  Status release(void* pointer);
  Result<cuda::BufferTicket> ticket_of(const void* pointer, std::size_t bytes);
  Result<void*> open(const cuda::BufferTicket& ticket, Rank peer, std::size_t bytes);
  Status forget(Rank peer);
  Result<std::uint64_t> dma_buf_offset(const void* pointer, std::size_t bytes);

  /// memory_fixture.h's there.
  Result<void*> cuda_malloc(std::size_t bytes);
  Status cuda_free(void* pointer);
  Result<void*> map_range(std::size_t piece_bytes, int pieces, bool exportable);
  Status unmap_ranges();
  Status fill(void* pointer, std::size_t bytes, std::uint8_t value);
  int common_byte(const void* pointer, std::size_t bytes);
  /// The next call of that driver function there fails.
  Status fail(const std::string& function, CUresult result);
  Result<std::uint64_t> calls(const std::string& function);

  /// Ends its DeviceMemory, then the process, which must end well (its driver fails it for leaks).
  /// The number of things that its driver still held or complained about.
  Result<std::uint64_t> close();
  /// As `kill -9`.
  void die();
  pid_t pid() const { return process_.pid(); }

 private:
  Result<OwnerReply> ask(const OwnerRequest& request);

  UniqueFd link_;
  ChildProcess process_;
};

}  // namespace unisono::test
