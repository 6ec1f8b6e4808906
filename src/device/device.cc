#include "device/device.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"
#include "device/memop_batch.h"

namespace unisono::device {
namespace {

constexpr std::size_t kGatePageBytes = 4096;
// A line each: a device that polls one gate is not disturbed by another's opening.
constexpr std::size_t kGateBytes = 64;

}  // namespace

Result<std::unique_ptr<Device>> Device::open(std::shared_ptr<const cuda::CudaApi> api, int ordinal,
                                             std::size_t staging_bytes_max) {
  std::unique_ptr<Device> device(new Device(api));
  device->staging_bytes_max_ = staging_bytes_max;
  UNISONO_ASSIGN(device->memory_, cuda::DeviceMemory::open(api, ordinal));
  const cuda::DriverSection section(*api, device->context());
  UNISONO_TRY(section.status());
  UNISONO_ASSIGN(device->share_,
                 DeviceShare::of(api, device->memory_->device(), device->context()));
  device->find_memops();
  return device;
}

std::string hex_text(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::vector<std::string> Device::out_of_reach() const {
  std::vector<std::string> uuids;
  for (const auto& uuid : memory_->out_of_reach()) uuids.push_back(hex_text(uuid));
  return uuids;
}

void Device::find_memops() {
  has_memops_ = api_->StreamBatchMemOp != nullptr && try_memops();
  has_wide_memops_ = has_memops_ && try_wide_memops();
}

// A device may have the functions and not the ability.
bool Device::try_memops() {
  const Result<Gate> gate = take_gate();
  if (!gate) return false;
  MemopBatch batch;
  batch.write(reinterpret_cast<CUdeviceptr>(gate->word), gate->value);
  batch.wait(reinterpret_cast<CUdeviceptr>(gate->word), gate->value);
  const bool able = batch.enqueue(*api_, outward_stream(), "trying to wait on " + name()).ok() &&
                    api_->StreamSynchronize(outward_stream()) == CUDA_SUCCESS;
  give_back(*gate);
  return able;
}

bool Device::try_wide_memops() {
  const Result<Gate> gate = take_gate();
  if (!gate) return false;
  MemopBatch batch;
  batch.wait_wide(reinterpret_cast<CUdeviceptr>(gate->word), 0);
  const bool able = batch.enqueue(*api_, outward_stream(), "waiting on " + name()).ok() &&
                    api_->StreamSynchronize(outward_stream()) == CUDA_SUCCESS;
  give_back(*gate);
  return able;
}

Device::~Device() {
  if (memory_ == nullptr) return;
  const cuda::DriverSection section(*api_, context());
  for (CUevent event : events_) api_->EventDestroy(event);
  for (const Block& block : free_) api_->MemFreeHost(block.data);
  for (std::byte* page : pages_) api_->MemFreeHost(page);
}

Result<CUevent> Device::take_event() {
  if (!events_.empty()) {
    CUevent event = events_.back();
    events_.pop_back();
    return event;
  }
  CUevent event = nullptr;
  UNISONO_TRY(api_->check(api_->EventCreate(&event, CU_EVENT_DISABLE_TIMING),
                          "making an event on " + name()));
  return event;
}

void Device::give_back(CUevent event) {
  if (event != nullptr) events_.push_back(event);
}

Device::Staging& Device::Staging::operator=(Staging&& other) noexcept {
  release();
  device_ = std::exchange(other.device_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  charged_ = std::exchange(other.charged_, 0);
  return *this;
}

void Device::Staging::release() {
  if (data_ != nullptr) {
    device_->free_.push_back({data_, bytes_});
    device_->charged_bytes_ -= charged_;
  }
  data_ = nullptr;
}

// Page-locking costs far more than the copy: blocks are kept, in powers of two, until the device is
// closed. To free one the driver waits for all of the device's streams, and one of them may be
// waiting for this call. Where what is kept comes to the bound a longer block will do.
Result<Device::Staging> Device::take_staging(std::size_t bytes, Bound bound) {
  constexpr std::size_t kSmallest = 64 << 10;
  const std::size_t wanted = std::bit_ceil(std::max(bytes, kSmallest));
  if (bound == Bound::kHolds && charged_bytes_ + wanted > staging_bytes_max_) {
    return Status(ErrorCode::kOutOfResources, "staging " + std::to_string(bytes) + " bytes of " +
                                                  name() + " needs " + std::to_string(wanted) +
                                                  " bytes of page-locked memory; " +
                                                  std::to_string(charged_bytes_) + " of at most " +
                                                  std::to_string(staging_bytes_max_) +
                                                  " are in use: raise UNISONO_SCRATCH_BYTES");
  }
  Staging staging;
  staging.device_ = this;
  staging.charged_ = bound == Bound::kHolds ? wanted : 0;
  if (const auto found = find_free(wanted); found != free_.end()) {
    staging.data_ = found->data;
    staging.bytes_ = found->bytes;
    charged_bytes_ += staging.charged_;
    free_.erase(found);
    return staging;
  }
  void* memory = nullptr;
  UNISONO_TRY(api_->check(api_->MemHostAlloc(&memory, wanted, CU_MEMHOSTALLOC_PORTABLE),
                          "page-locking " + std::to_string(wanted) + " bytes for " + name()));
  staging.data_ = static_cast<std::byte*>(memory);
  staging.bytes_ = wanted;
  staging_bytes_ += wanted;
  charged_bytes_ += staging.charged_;
  return staging;
}

// The shortest that will do.
std::vector<Device::Block>::iterator Device::find_free(std::size_t wanted) {
  const bool is_full = staging_bytes_ + wanted > staging_bytes_max_;
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const bool will_do = block->bytes == wanted || (is_full && block->bytes > wanted);
    if (will_do && (best == free_.end() || block->bytes < best->bytes)) best = block;
  }
  return best;
}

Result<Device::Gate> Device::take_gate() {
  if (gates_.empty()) {
    void* memory = nullptr;
    UNISONO_TRY(
        api_->check(api_->MemHostAlloc(&memory, kGatePageBytes,
                                       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                    "page-locking a page for " + name()));
    auto* const page = static_cast<std::byte*>(memory);
    pages_.push_back(page);
    std::memset(page, 0, kGatePageBytes);
    for (std::size_t at = 0; at < kGatePageBytes; at += kGateBytes) {
      gates_.push_back({new (page + at) std::uint32_t(0), 0});
    }
  }
  Gate gate = gates_.back();
  gates_.pop_back();
  ++gate.value;
  ++lent_gates_;
  return gate;
}

void Device::give_back(Gate gate) {
  gates_.push_back(gate);
  --lent_gates_;
}

Status Device::enqueue_wait(CUstream stream, const Gate& gate) const {
  MemopBatch wait;
  wait.wait(reinterpret_cast<CUdeviceptr>(gate.word), gate.value);
  return wait.enqueue(*api_, stream, "enqueueing a wait on " + name());
}

void Device::open(const Gate& gate) {
  std::atomic_ref<std::uint32_t>(*gate.word).store(gate.value, std::memory_order_release);
}

Result<bool> Device::is_over(CUevent event) const {
  const CUresult result = api_->EventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  UNISONO_TRY(api_->check(result, "waiting for " + name()));
  return true;
}

}  // namespace unisono::device
