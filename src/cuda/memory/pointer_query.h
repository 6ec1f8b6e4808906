// What the driver knows of a pointer, asked in one call. Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "cuda/memory/device.h"
#include "cuda/memory/device_memory.h"

namespace unisono::cuda {

struct PointerRecord {
  PointerFacts facts;
  bool known = false;   ///< to the driver at all
  bool mapped = false;  ///< false in a reserved range without memory behind it
  bool managed = false;
  bool ipc_capable = false;     ///< cuIpcGetMemHandle takes it
  CUmemoryPool pool = nullptr;  ///< null: it is of none
  /// Of its allocation; never used again in this process. 0: the driver has none, or the buffer
  /// lies in several pieces, each of which has its own.
  std::uint64_t buffer_id = 0;
};

/// The driver's own error where it gives one, before cuInit for example.
Result<PointerRecord> query_pointer(const CudaApi& api, const void* pointer);

/// The same for `bytes` that the user means to pass. kInvalidArgument for memory that was freed or
/// that ends before; host memory is not `facts.device`.
Result<PointerRecord> check_buffer(const Device& device, const void* pointer, std::size_t bytes);

/// Whether the host may read the byte at `pointer`; true on any doubt.
bool is_readable_by_host(const void* pointer);

/// "4096 bytes at 0x7f0012340000" for messages.
std::string buffer_text(const void* pointer, std::size_t bytes);

}  // namespace unisono::cuda
