#include "cuda/device/device_share.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "config/environment.h"
#include "cuda/driver/driver_section.h"

namespace unisono::device {
namespace {

// Enough for all communicators of nearly every program: more are page-locked when they are needed.
constexpr std::size_t kWordPageBytes = 64 << 10;
constexpr std::size_t kWordBytes = 64;  // a line each

/// Of one context. Ranks that come second wait for the first one's kernels, and for no other
/// device's.
struct Place {
  std::mutex mutex;
  std::weak_ptr<DeviceShare> share;
};

// Reads the variable as the driver does, which takes no other value.
int hardware_queues() {
  int queues = 8;
  static_cast<void>(config::read_integer("CUDA_DEVICE_MAX_CONNECTIONS", 1, 32, &queues));
  return queues;
}

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

DeviceShare::DeviceShare(std::shared_ptr<const cuda::CudaApi> api, CUdevice device,
                         CUcontext context)
    : api_(std::move(api)),
      device_(device),
      context_(context),
      waiting_streams_(hardware_queues()) {}

Status DeviceShare::make() {
  CUcontext retained = nullptr;
  UNISONO_TRY(api_->check(api_->DevicePrimaryCtxRetain(&retained, device_), "keeping a context"));
  is_retained_ = true;
  UNISONO_ASSIGN(kernels_, cuda::Kernels::load(api_, device_, context_));
  UNISONO_ASSIGN(outward_, make_stream());
  UNISONO_ASSIGN(inward_, make_stream());
  return add_words();
}

Result<std::uint32_t*> DeviceShare::take_word() {
  const std::lock_guard guard(words_mutex_);
  if (free_words_.empty()) UNISONO_TRY(add_words());
  std::uint32_t* const word = free_words_.back();
  free_words_.pop_back();
  *word = 0;
  return word;
}

void DeviceShare::give_back_word(std::uint32_t* word) {
  const std::lock_guard guard(words_mutex_);
  free_words_.push_back(word);
}

Status DeviceShare::add_words() {
  void* page = nullptr;
  UNISONO_TRY(api_->check(api_->MemHostAlloc(&page, kWordPageBytes,
                                             CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                          "page-locking words"));
  word_pages_.push_back(page);
  for (std::size_t at = 0; at < kWordPageBytes; at += kWordBytes) {
    free_words_.push_back(new (static_cast<std::byte*>(page) + at) std::uint32_t(0));
  }
  return Status();
}

Result<CUstream> DeviceShare::make_stream() const {
  CUstream stream = nullptr;
  UNISONO_TRY(api_->check(
      api_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, cuda::kHighestStreamPriority),
      "making a stream on device " + std::to_string(device_)));
  return stream;
}

CUresult DeviceShare::fault() const {
  const cuda::DriverSection section(*api_, context_);
  const CUresult result = api_->StreamQuery(outward_);
  return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

DeviceShare::~DeviceShare() {
  const cuda::DriverSection section(*api_, context_);
  if (!section.status()) return;  // the process was forked, or the context broke
  for (void* const page : word_pages_) api_->MemFreeHost(page);
  for (CUstream stream : {outward_, inward_}) {
    if (stream == nullptr) continue;
    api_->StreamSynchronize(stream);
    api_->StreamDestroy(stream);
  }
  kernels_.reset();
  if (is_retained_) api_->DevicePrimaryCtxRelease(device_);
}

}  // namespace unisono::device
