// Stream memory operations that go to the driver together: words of host memory that a stream
// writes and waits for, in the order in which they are added.
//
// Thread rule: a plain value.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "cuda/driver/cuda_api.h"

namespace unisono::cuda {

/// What MemopBatch::wait() waits for, as the host sees it now: cyclic numbers are compared.
bool has_come(const std::uint32_t& word, std::uint32_t value);

class MemopBatch {
 public:
  /// Behind everything that the stream has done, as other devices and the host see it.
  void write(CUdeviceptr word, std::uint32_t value);
  /// Until the word has come to `value`, see has_come().
  void wait(CUdeviceptr word, std::uint32_t value);
  /// The same for a word of 64 bits.
  void wait_wide(CUdeviceptr word, std::uint64_t value);

  /// On `stream`, or into the graph that it is captured into. `what` is for the error.
  Status enqueue(const CudaApi& api, CUstream stream, const std::string& what);

 private:
  static constexpr unsigned kOperationsMax = 64;
  CUstreamBatchMemOpParams& add(CUstreamBatchMemOpType operation);

  std::array<CUstreamBatchMemOpParams, kOperationsMax> operations_{};
  unsigned count_ = 0;
};

}  // namespace unisono::cuda
