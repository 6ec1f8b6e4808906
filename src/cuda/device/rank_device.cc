#include "cuda/device/rank_device.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "cuda/device/device.h"
#include "cuda/device/leaked.h"
#include "cuda/device/refused_device.h"
#include "cuda/memory/process_identity.h"

namespace unisono::device {
namespace {

std::string text_of_process() {
  const std::uint64_t key = cuda::process_identity().key;
  std::array<std::uint8_t, 8> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(key >> (8 * i));
  }
  return hex_text(bytes);
}

class CudaRankDevice final : public RankDevice {
 public:
  CudaRankDevice(std::shared_ptr<const cuda::CudaApi> api, const Config& config)
      : api_(std::move(api)),
        staging_bytes_max_(config.scratch_bytes),
        gates_max_(config.cuda.gates ? kCallsAheadMax : 0),
        published_(text_of_process() + ':') {}

  ~CudaRankDevice() override;

  Status choose(const DeviceWish& wish, bool required);

  std::string published() const override { return published_; }
  bool is_device_memory(const void* pointer) const override {
    return cuda::look_at(*api_, pointer).device;
  }
  Result<Device*> device_for(const void* pointer) override;
  Device* device() const override { return opened_.load(std::memory_order_acquire); }
  Status refusal() const override { return Status(); }
  Result<void*> allocate(std::size_t bytes) override;
  Status release(void* pointer) override;

 private:
  Status open(int ordinal);
  Result<int> count() const;
  int ordinal_in_use(int count) const;

  const std::shared_ptr<const cuda::CudaApi> api_;
  const std::size_t staging_bytes_max_;
  const std::size_t gates_max_;
  std::mutex opening_;
  std::unique_ptr<Device> device_;
  std::atomic<Device*> opened_ = nullptr;  // the same, once it is made
  std::string published_;
};

CudaRankDevice::~CudaRankDevice() {
  if (device_ == nullptr || !device_->is_stuck()) return;
  log::warning("streams of " + device_->name() +
               " still wait behind a failed call: what they may touch is left as it is");
  leak_until_exit(std::move(device_));
}

Result<int> CudaRankDevice::count() const {
  UNISONO_TRY(api_->check(api_->Init(0), "starting the CUDA driver"));
  int count = 0;
  UNISONO_TRY(api_->check(api_->DeviceGetCount(&count), "counting CUDA devices"));
  return count;
}

Status CudaRankDevice::open(int ordinal) {
  UNISONO_ASSIGN(device_, Device::open(api_, ordinal, staging_bytes_max_, gates_max_));
  opened_.store(device_.get(), std::memory_order_release);
  return Status();
}

// The device whose context is current here, else the only one with a context; -1: neither.
int CudaRankDevice::ordinal_in_use(int count) const {
  CUcontext context = nullptr;
  CUdevice current = 0;
  const bool has_context = api_->CtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr &&
                           api_->CtxGetDevice(&current) == CUDA_SUCCESS;
  int found = -1;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    if (api_->DeviceGet(&device, ordinal) != CUDA_SUCCESS) continue;
    if (has_context) {
      if (device == current) return ordinal;
      continue;
    }
    unsigned flags = 0;
    int active = 0;
    if (api_->DevicePrimaryCtxGetState == nullptr ||
        api_->DevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) {
      continue;
    }
    if (found >= 0) return -1;
    found = ordinal;
  }
  return found;
}

Status CudaRankDevice::choose(const DeviceWish& wish, bool required) {
  int ordinal = wish.ordinal;
  if (ordinal < 0 && !required) {
    // Before anybody has started the driver this process uses no device.
    CUcontext context = nullptr;
    if (api_->CtxGetCurrent(&context) == CUDA_ERROR_NOT_INITIALIZED) return Status();
  }
  UNISONO_ASSIGN(const int devices, count());
  if (devices == 0) {
    if (ordinal < 0 && !required) return Status();
    return Status(ErrorCode::kUnsupported,
                  "a CUDA device is asked for and the driver has none; see nvidia-smi and "
                  "CUDA_VISIBLE_DEVICES");
  }
  if (ordinal < 0) ordinal = ordinal_in_use(devices);
  if (ordinal < 0 && required) ordinal = wish.local_rank % devices;
  if (ordinal < 0) return Status();
  UNISONO_TRY(open(ordinal));
  published_ += hex_text(device_->memory().uuid());
  return Status();
}

Result<Device*> CudaRankDevice::device_for(const void* pointer) {
  if (Device* const opened = device(); opened != nullptr) return opened;
  const std::lock_guard guard(opening_);
  if (device_ == nullptr) {
    const cuda::PointerFacts facts = cuda::look_at(*api_, pointer);
    UNISONO_ASSIGN(const int devices, count());
    if (devices == 0) return Status(ErrorCode::kUnsupported, "the driver has no CUDA device");
    UNISONO_TRY(open(facts.device ? facts.ordinal : 0));
  }
  return device_.get();
}

Result<void*> CudaRankDevice::allocate(std::size_t bytes) {
  UNISONO_ASSIGN(Device* const device, device_for(nullptr));
  return device->memory().allocate(bytes);
}

Status CudaRankDevice::release(void* pointer) {
  Device* const opened = device();
  if (opened == nullptr) {
    return Status(ErrorCode::kInvalidArgument, "the pointer is not from unisono::allocate");
  }
  return opened->memory().release(pointer);
}

}  // namespace

Result<std::unique_ptr<RankDevice>> RankDevice::open(const Config& config, const DeviceWish& wish) {
  const bool required = config.cuda.use == "require";
  const bool wished = wish.ordinal >= 0;
  if (config.cuda.use == "off") {
    const Status off(ErrorCode::kUnsupported,
                     "UNISONO_CUDA=off: set it to auto for calls on device memory");
    if (wished) return off;
    return RefusedDevice::make(off);
  }
  Result<std::shared_ptr<const cuda::CudaApi>> api = cuda::load_cuda_driver(config.cuda.library);
  if (!api) {
    if (required || wished) return api.error();
    return std::unique_ptr<RankDevice>();
  }
  auto device = std::make_unique<CudaRankDevice>(std::move(*api), config);
  UNISONO_TRY(device->choose(wish, required));
  return std::unique_ptr<RankDevice>(std::move(device));
}

}  // namespace unisono::device
