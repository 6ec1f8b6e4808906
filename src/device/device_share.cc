#include "device/device_share.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "compute/driver_section.h"

namespace unisono::device {
namespace {

constexpr std::size_t kWordPageBytes = 4096;
constexpr std::size_t kWordBytes = 64;

}  // namespace

// Under the lock, loading too: a rank that comes second waits for the first one's kernels.
Result<std::shared_ptr<DeviceShare>> DeviceShare::of(
    const std::shared_ptr<const cuda::CudaApi>& api, CUdevice device, CUcontext context) {
  static std::mutex mutex;
  static auto* const shares = new std::map<CUcontext, std::weak_ptr<DeviceShare>>;
  const std::lock_guard guard(mutex);
  std::erase_if(*shares, [](const auto& share) { return share.second.expired(); });
  if (const auto found = shares->find(context); found != shares->end()) {
    if (std::shared_ptr<DeviceShare> share = found->second.lock()) return share;
  }
  std::shared_ptr<DeviceShare> share(new DeviceShare(api, device, context));
  UNISONO_TRY(share->make());
  (*shares)[context] = share;
  return share;
}

Status DeviceShare::make() {
  CUcontext retained = nullptr;
  UNISONO_TRY(api_->check(api_->DevicePrimaryCtxRetain(&retained, device_), "keeping a context"));
  is_retained_ = true;
  UNISONO_ASSIGN(kernels_, cuda::Kernels::load(api_, device_, context_));
  for (CUstream* stream : {&outward_, &inward_}) {
    UNISONO_TRY(api_->check(api_->StreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING,
                                                           cuda::kHighestStreamPriority),
                            "making a stream for copies"));
  }
  return add_words();
}

// A line each.
Result<std::uint32_t*> DeviceShare::take_word() {
  const std::lock_guard guard(words_mutex_);
  if (free_words_.empty()) UNISONO_TRY(add_words());
  std::uint32_t* const word = free_words_.back();
  free_words_.pop_back();
  *word = 0;
  return word;
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

void DeviceShare::give_back_word(std::uint32_t* word) {
  const std::lock_guard guard(words_mutex_);
  free_words_.push_back(word);
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
