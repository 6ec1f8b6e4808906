// One GPU as the trainer opened it: the driver's table, the retained primary context, and errors
// that name the device. Immutable after construction; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/driver/cuda_api.h"
#include "cuda/driver/driver_section.h"

namespace unisono::train {

class Gpu {
 public:
  /// std::runtime_error says what is missing and what to do: see make_cuda_backend().
  explicit Gpu(int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const cuda::CudaApi& api() const { return *api_; }
  /// "device 1".
  const std::string& name() const { return name_; }
  std::size_t memory_bytes() const { return memory_bytes_; }
  int multiprocessors() const { return multiprocessors_; }
  /// 9 of compute capability 9.0.
  int capability_major() const { return capability_major_; }
  /// 13 of CUDA 13.0: the newest that the driver runs.
  int cuda_major() const { return api_->version / 1000; }
  /// The value of UNISONO_CUBLAS_LIBRARY.
  const std::string& cublas_file() const { return cublas_file_; }

  /// Throws std::runtime_error, "device 1: <what>: CUDA_ERROR_...", unless the call succeeded.
  void check(CUresult result, const char* what) const {
    if (result != CUDA_SUCCESS) fail(result, what);
  }
  [[noreturn]] void fail(CUresult result, const std::string& what) const;
  /// With the device's name in front.
  [[noreturn]] void fail(const std::string& reason) const;

  /// The context is current on this thread while it lives, and captures of other threads forbid it
  /// nothing.
  class Scope {
   public:
    explicit Scope(const Gpu& gpu) : section_(*gpu.api_, gpu.context_) {
      if (!section_.status()) gpu.fail(section_.status().message());
    }

   private:
    cuda::DriverSection section_;
  };
  /// The same for destructors: false when the context is gone, and all that was in it.
  class QuietScope {
   public:
    explicit QuietScope(const Gpu& gpu) : section_(*gpu.api_, gpu.context_) {}
    explicit operator bool() const { return section_.status().ok(); }

   private:
    cuda::DriverSection section_;
  };

 private:
  void find_device(int ordinal);

  std::string name_, cublas_file_;
  std::shared_ptr<const cuda::CudaApi> api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::size_t memory_bytes_ = 0;
  int multiprocessors_ = 0, capability_major_ = 0;
};

}  // namespace unisono::train
