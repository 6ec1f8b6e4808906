#include "train/cuda/gpu_backend.h"

#include "train/cuda/cuda_backend.h"

namespace unisono::train {

GpuBackend::GpuBackend(int device)
    : gpu_(std::make_shared<const Gpu>(device)),
      launcher_(gpu_),
      blocks_(gpu_),
      streams_(gpu_),
      staging_(gpu_),
      products_(gpu_, streams_.main(), blocks_) {}

// Members end in reverse: what the streams may use is there until they were waited for, as
// freeing a block and unloading a kernel come after.
GpuBackend::~GpuBackend() = default;

void GpuBackend::enqueue_copy(const void* from, std::size_t bytes, void* to) {
  if (bytes == 0) return;
  const Gpu::Scope scope(*gpu_);
  const CUresult copied =
      gpu_->api().MemcpyAsync(reinterpret_cast<CUdeviceptr>(to),
                              reinterpret_cast<CUdeviceptr>(from), bytes, streams_.main());
  if (copied != CUDA_SUCCESS) gpu_->fail(copied, "copying " + std::to_string(bytes) + " bytes");
}

void GpuBackend::download(const void* from, std::size_t bytes, void* host) {
  enqueue_copy(from, bytes, host);
  if (bytes != 0) streams_.wait_for_main();
}

void GpuBackend::read(const float* from, std::size_t count, float* host) {
  download(from, count * sizeof(float), host);
}

void GpuBackend::write(const float* host, std::size_t count, float* to) {
  upload(std::span(host, count), to);
}

// Slots make a few bytes wait for nothing. Of more the copy into slots takes longer than the wait.
void GpuBackend::write_page_locked(const float* host, std::size_t count, float* to) {
  if (count * sizeof(float) <= Staging::kBytes) return write(host, count, to);
  enqueue_copy(host, count * sizeof(float), to);
  streams_.wait_for_main();
}

void GpuBackend::copy(const float* from, std::size_t count, float* to) {
  enqueue_copy(from, count * sizeof(float), to);
}

void GpuBackend::fill(float* to, std::size_t count, float value) {
  launch(kernels::Fill{count, value, to});
}

std::shared_ptr<Backend> make_cuda_backend(int device) {
  return std::make_shared<GpuBackend>(device);
}

}  // namespace unisono::train
