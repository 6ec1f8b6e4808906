// What the tests of device memory do with the fake driver themselves: memory that unisono did not
// allocate, bytes written and read through streams. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/driver/cuda_api.h"
#include "cuda/memory/device_memory.h"
#include "tests/cuda/driver_under_test.h"

namespace unisono::test {

inline constexpr std::size_t kMiB = 1 << 20;

/// Nothing is alive in the fake driver and it has not complained since the last call of this; a
/// real driver does not tell.
void expect_clean_driver();

std::unique_ptr<cuda::DeviceMemory> open_device(int ordinal = 0);

/// A rank of another process, and one of this.
constexpr cuda::Peer other_process(Rank rank) { return {rank, rank, false}; }
constexpr cuda::Peer this_process(Rank rank) { return {rank, rank, true}; }

/// As an application has it from cudaMalloc; null when refused.
void* cuda_malloc(const cuda::DeviceMemory& memory, std::size_t bytes);
void cuda_free(const cuda::DeviceMemory& memory, void* pointer);

/// As an application has it from cuMemCreate: `pieces` handles of `piece_bytes` in one range.
struct MappedRange {
  void* pointer = nullptr;
  std::size_t piece_bytes = 0;
  bool is_exportable = false;
  std::vector<CUmemGenericAllocationHandle> handles;
};
MappedRange map_range(const cuda::DeviceMemory& memory, std::size_t piece_bytes, int pieces,
                      bool exportable);
void unmap_range(const MappedRange& range);
/// Unmaps piece `index`, and maps new memory of the same device at its place.
void remap_piece(const cuda::DeviceMemory& memory, std::size_t index, MappedRange* range);

void fill(const cuda::DeviceMemory& memory, void* pointer, std::size_t bytes, std::uint8_t value);
/// The value that all of these bytes have; -1 where they differ or cannot be read.
int common_byte(const cuda::DeviceMemory& memory, const void* pointer, std::size_t bytes);

/// Whether the driver numbers memory that has a handle: what it does not is staged.
bool has_numbers_of_windows(cuda::DeviceMemory& memory);

/// How often the fake driver was called, over all functions that set memory up.
std::uint64_t memory_calls();

inline std::byte* at(void* pointer, std::size_t offset) {
  return static_cast<std::byte*>(pointer) + offset;
}

}  // namespace unisono::test
