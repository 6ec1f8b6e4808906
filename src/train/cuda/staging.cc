#include "train/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace unisono::train {

Staging::Staging(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {
  const Gpu::Scope scope(*gpu_);
  try {
    void* memory = nullptr;
    gpu_->check(gpu_->api().MemHostAlloc(&memory, kSlots * kSlotBytes, CU_MEMHOSTALLOC_PORTABLE),
                "page-locking memory for staging");
    memory_ = static_cast<std::byte*>(memory);
    for (CUevent& event : used_) {
      gpu_->check(gpu_->api().EventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event");
    }
  } catch (...) {
    close();
    throw;
  }
}

Staging::~Staging() { close(); }

void Staging::close() noexcept {
  const Gpu::QuietScope scope(*gpu_);
  if (!scope) return;
  for (CUevent event : used_) {
    if (event == nullptr) continue;
    gpu_->api().EventSynchronize(event);
    gpu_->api().EventDestroy(event);
  }
  if (memory_ != nullptr) gpu_->api().MemFreeHost(memory_);
}

void Staging::write(CUstream stream, const void* host, std::size_t bytes, void* to) {
  const Gpu::Scope scope(*gpu_);
  const auto* from = static_cast<const std::byte*>(host);
  for (std::size_t done = 0; done < bytes; next_ = (next_ + 1) % kSlots) {
    const std::size_t part = std::min(bytes - done, kSlotBytes);
    std::byte* slot = memory_ + next_ * kSlotBytes;
    gpu_->check(gpu_->api().EventSynchronize(used_[next_]), "waiting for an earlier copy");
    std::memcpy(slot, from + done, part);
    const CUresult copied =
        gpu_->api().MemcpyAsync(reinterpret_cast<CUdeviceptr>(to) + done,
                                reinterpret_cast<CUdeviceptr>(slot), part, stream);
    if (copied != CUDA_SUCCESS) gpu_->fail(copied, "copying " + std::to_string(part) + " bytes");
    gpu_->check(gpu_->api().EventRecord(used_[next_], stream), "recording an event");
    done += part;
  }
}

}  // namespace unisono::train
