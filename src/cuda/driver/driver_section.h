// A stretch of driver calls: the device's context is current, and calls that a stream capture
// elsewhere in the process would forbid (or that would end it) are allowed, because none of them
// touches a stream that is captured unknown to the library. Both are as before at its end.
//
// Thread rule: begins and ends on one thread.
#pragma once

#include "cuda/driver/cuda_api.h"

namespace unisono::cuda {

/// Takes this thread out of the rules of captures that are not relaxed.
class CaptureExemption {
 public:
  explicit CaptureExemption(const CudaApi& api) : api_(api) { exchange(); }
  ~CaptureExemption() {
    if (exempt_) exchange();
  }
  CaptureExemption(const CaptureExemption&) = delete;
  CaptureExemption& operator=(const CaptureExemption&) = delete;

 private:
  void exchange() {
    if (api_.ThreadExchangeStreamCaptureMode == nullptr) return;
    exempt_ = api_.ThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
  }

  const CudaApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool exempt_ = false;
};

class DriverSection {
 public:
  DriverSection(const CudaApi& api, CUcontext context) : exemption_(api), current_(api, context) {}
  const Status& status() const { return current_.status(); }

 private:
  CaptureExemption exemption_;
  CurrentContext current_;
};

}  // namespace unisono::cuda
