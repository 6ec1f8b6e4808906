#include "cuda/device/device.h"

#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.h"
#include "cuda/driver/memop_batch.h"

namespace unisono::device {
namespace {

constexpr std::size_t kGatePageBytes = 4096;
// A line each: a device that polls one gate is not disturbed by another's opening.
constexpr std::size_t kGateBytes = 64;
// Another page would be page-locked with the engine's lock, when the driver may wait for a gate.
static_assert(kGatePageBytes / kGateBytes >= kCallsAheadMax);

}  // namespace

Result<std::unique_ptr<Device>> Device::open(std::shared_ptr<const cuda::CudaApi> api, int ordinal,
                                             std::size_t staging_bytes_max, std::size_t gates_max) {
  std::unique_ptr<Device> device(new Device(api, gates_max));
  UNISONO_ASSIGN(device->memory_, cuda::DeviceMemory::open(api, ordinal));
  const cuda::DriverSection section(*api, device->context());
  UNISONO_TRY(section.status());
  UNISONO_ASSIGN(device->share_,
                 DeviceShare::of(api, device->memory_->device(), device->context()));
  device->share_->count_rank(1);
  device->staging_ =
      std::make_unique<StagingPool>(api, device->context(), device->name(), staging_bytes_max);
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
  cuda::MemopBatch batch;
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
  cuda::MemopBatch batch;
  batch.wait_wide(reinterpret_cast<CUdeviceptr>(gate->word), 0);
  const bool able = batch.enqueue(*api_, outward_stream(), "waiting on " + name()).ok() &&
                    api_->StreamSynchronize(outward_stream()) == CUDA_SUCCESS;
  give_back(*gate);
  return able;
}

Device::~Device() {
  if (share_ != nullptr) share_->count_rank(-1);
  if (memory_ == nullptr) return;
  const cuda::DriverSection section(*api_, context());
  for (CUevent event : events_) api_->EventDestroy(event);
  staging_.reset();
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
  cuda::MemopBatch wait;
  wait.wait(reinterpret_cast<CUdeviceptr>(gate.word), gate.value);
  return wait.enqueue(*api_, stream, "enqueueing a wait on " + name());
}

void Device::open(const Gate& gate) {
  std::atomic_ref<std::uint32_t>(*gate.word).store(gate.value, std::memory_order_release);
}

Result<bool> Device::is_over(CUevent event) const {
  const CUresult result = api_->EventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result == CUDA_SUCCESS) return true;
  return api_->check(result, "waiting for " + name());
}

Status Device::health() const {
  const CUresult fault = share_->fault();
  return fault == CUDA_SUCCESS ? Status() : api_->check(fault, "waiting for " + name());
}

}  // namespace unisono::device
