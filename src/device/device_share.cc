#include "device/device_share.h"

#include <map>
#include <mutex>
#include <utility>

#include "compute/driver_section.h"

namespace unisono::device {
namespace {

/// Of one context. Ranks that come second wait for the first one's kernels, and for no other
/// device's.
struct Place {
  std::mutex mutex;
  std::weak_ptr<DeviceShare> share;
};

Place& place_of(CUcontext context) {
  static std::mutex mutex;
  static auto* const places = new std::map<CUcontext, Place>;
  const std::lock_guard guard(mutex);
  return (*places)[context];
}

}  // namespace

Result<std::shared_ptr<DeviceShare>> DeviceShare::of(
    const std::shared_ptr<const cuda::CudaApi>& api, CUdevice device, CUcontext context) {
  Place& place = place_of(context);
  const std::lock_guard guard(place.mutex);
  if (std::shared_ptr<DeviceShare> known = place.share.lock()) return known;
  std::shared_ptr<DeviceShare> share(new DeviceShare(api, device, context));
  UNISONO_TRY(share->make());
  place.share = share;
  return share;
}

Status DeviceShare::make() {
  CUcontext retained = nullptr;
  UNISONO_TRY(api_->check(api_->DevicePrimaryCtxRetain(&retained, device_), "keeping a context"));
  is_retained_ = true;
  UNISONO_ASSIGN(kernels_, cuda::Kernels::load(api_, device_, context_));
  UNISONO_ASSIGN(outward_, make_stream(cuda::kHighestStreamPriority));
  UNISONO_ASSIGN(inward_, make_stream(cuda::kHighestStreamPriority));
  return api_->check(api_->StreamGetPriority(outward_, &copy_priority_), "asking for a priority");
}

bool DeviceShare::may_hold_up_copies(CUstream stream) const {
  int priority = 0;
  return api_->StreamGetPriority(stream, &priority) != CUDA_SUCCESS || priority <= copy_priority_;
}

Result<CUstream> DeviceShare::make_waiting_stream() const {
  return make_stream(copy_priority_ + 1);
}

Result<CUstream> DeviceShare::make_stream(int priority) const {
  CUstream stream = nullptr;
  UNISONO_TRY(api_->check(api_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority),
                          "making a stream on device " + std::to_string(device_)));
  return stream;
}

DeviceShare::~DeviceShare() {
  const cuda::DriverSection section(*api_, context_);
  if (!section.status()) return;  // the process was forked, or the context broke
  for (CUstream stream : {outward_, inward_}) {
    if (stream == nullptr) continue;
    api_->StreamSynchronize(stream);
    api_->StreamDestroy(stream);
  }
  kernels_.reset();
  if (is_retained_) api_->DevicePrimaryCtxRelease(device_);
}

}  // namespace unisono::device
