#include "cuda/driver/memop_batch.h"

#include <atomic>

#include "base/assert.h"

namespace unisono::cuda {

bool has_come(const std::uint32_t& word, std::uint32_t value) {
  const std::uint32_t seen =
      std::atomic_ref<const std::uint32_t>(word).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(seen - value) >= 0;
}

CUstreamBatchMemOpParams& MemopBatch::add(CUstreamBatchMemOpType operation) {
  UNISONO_ASSERT(count_ < kOperationsMax, "a batch of stream memory operations is too long");
  CUstreamBatchMemOpParams& added = operations_[count_++];
  added.operation = operation;
  return added;
}

void MemopBatch::write(CUdeviceptr word, std::uint32_t value) {
  CUstreamBatchMemOpParams& added = add(CU_STREAM_MEM_OP_WRITE_VALUE_32);
  added.writeValue.address = word;
  added.writeValue.value = value;
  added.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

void MemopBatch::wait(CUdeviceptr word, std::uint32_t value) {
  CUstreamBatchMemOpParams& added = add(CU_STREAM_MEM_OP_WAIT_VALUE_32);
  added.waitValue.address = word;
  added.waitValue.value = value;
  added.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
}

void MemopBatch::wait_wide(CUdeviceptr word, std::uint64_t value) {
  CUstreamBatchMemOpParams& added = add(CU_STREAM_MEM_OP_WAIT_VALUE_64);
  added.waitValue.address = word;
  added.waitValue.value64 = value;
  added.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
}

Status MemopBatch::enqueue(const CudaApi& api, CUstream stream, const std::string& what) {
  if (count_ == 0) return Status();
  return api.check(api.StreamBatchMemOp(stream, count_, operations_.data(), 0), what);
}

}  // namespace unisono::cuda
