#include "device/device_share.h"

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "compute/driver_section.h"

namespace unisono::device {
namespace {

constexpr std::size_t kWordBlockBytes = std::size_t{64} << 10;
constexpr std::size_t kWordBytes = 128;
// Copies that other calls have enqueued come first.
constexpr auto kFillLimit = std::chrono::seconds(1);

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
  std::shared_ptr<DeviceShare> share(new DeviceShare(api, context));
  UNISONO_TRY(share->make(device));
  (*shares)[context] = share;
  return share;
}

Status DeviceShare::make(CUdevice device) {
  UNISONO_ASSIGN(kernels_, cuda::Kernels::load(api_, device, context_));
  for (CUstream* stream : {&outward_, &inward_}) {
    UNISONO_TRY(api_->check(api_->StreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING,
                                                           cuda::kHighestStreamPriority),
                            "making a stream for copies"));
  }
  return add_words();
}

// A line each. To make room later than at the first rank's beginning may wait for streams.
Result<CUdeviceptr> DeviceShare::take_word() {
  CUdeviceptr word = 0;
  {
    const std::lock_guard guard(words_mutex_);
    if (free_words_.empty()) UNISONO_TRY(add_words());
    word = free_words_.back();
    free_words_.pop_back();
  }
  const Status filled = fill_word(word, false);
  if (filled) return word;
  give_back_word(word);
  return filled;
}

Status DeviceShare::add_words() {
  CUdeviceptr block = 0;
  UNISONO_TRY(api_->check(api_->MemAlloc(&block, kWordBlockBytes), "taking device memory"));
  word_blocks_.push_back(block);
  for (std::size_t at = 0; at < kWordBlockBytes; at += kWordBytes) {
    free_words_.push_back(block + at);
  }
  return Status();
}

void DeviceShare::give_back_word(CUdeviceptr word) {
  const std::lock_guard guard(words_mutex_);
  free_words_.push_back(word);
}

Status DeviceShare::fill_word(CUdeviceptr word, bool value) {
  const cuda::DriverSection section(*api_, context_);
  UNISONO_TRY(section.status());
  const std::string what = "writing a word of device memory";
  CUevent filled = nullptr;
  UNISONO_TRY(api_->check(api_->EventCreate(&filled, CU_EVENT_DISABLE_TIMING), what));
  CUresult found = api_->MemsetD8Async(word, value ? 1 : 0, sizeof(std::uint32_t), outward_);
  if (found == CUDA_SUCCESS) found = api_->EventRecord(filled, outward_);
  const TimePoint limit = Clock::now() + kFillLimit;
  while (found == CUDA_SUCCESS) {
    found = api_->EventQuery(filled);
    if (found != CUDA_ERROR_NOT_READY || Clock::now() >= limit) break;
    found = CUDA_SUCCESS;
  }
  api_->EventDestroy(filled);
  return api_->check(found, what);
}

DeviceShare::~DeviceShare() {
  const cuda::DriverSection section(*api_, context_);
  for (const CUdeviceptr block : word_blocks_) api_->MemFree(block);
  for (CUstream stream : {outward_, inward_}) {
    if (stream == nullptr) continue;
    api_->StreamSynchronize(stream);
    api_->StreamDestroy(stream);
  }
}

}  // namespace unisono::device
