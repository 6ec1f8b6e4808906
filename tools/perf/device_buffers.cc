// The driver's functions that a measurement needs, on the primary context that the library uses
// too.
#include "tools/perf/device_buffers.h"

#include <array>

#include "cuda/driver/cuda_api.h"
#include "cuda/driver/survey.h"
#include "tools/perf/floor_kernels.h"

namespace unisono::perf {
namespace {

class CudaBuffers final : public DeviceBuffers {
 public:
  CudaBuffers(std::shared_ptr<const cuda::CudaApi> api, int ordinal)
      : api_(std::move(api)), ordinal_(ordinal) {}
  ~CudaBuffers() override;

  Status prepare();

  CudaStream stream() const override { return stream_; }
  int ordinal() const override { return ordinal_; }
  const std::string& name() const override { return name_; }
  std::uint64_t identity() const override { return identity_; }
  std::size_t cache_bytes() const override { return cache_bytes_; }
  std::size_t free_bytes() const override;

  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void fill(std::byte* to, unsigned char value, std::size_t bytes) override;
  void move(void* to, const void* from, std::size_t bytes) override {
    must(kernels().move(stream_, to, from, bytes));
  }
  void launch_empty() override { must(kernels().launch_empty(stream_)); }
  void finish() override { must(api_->StreamSynchronize(stream_), "waiting for the stream"); }
  void start_clock() override { must(api_->EventRecord(began_, stream_), "recording an event"); }
  double stop_clock() override;

 private:
  Status describe();
  const FloorKernels& kernels();
  std::string on_device(const std::string& what) const {
    return what + " on device " + std::to_string(ordinal_);
  }
  Status check(CUresult result, const std::string& what) const {
    return result == CUDA_SUCCESS ? Status() : api_->check(result, on_device(what));
  }
  void must(CUresult result, const char* what) const {
    if (result != CUDA_SUCCESS) throw Error(api_->check(result, on_device(what)));
  }
  static void must(const Status& status) {
    if (!status) throw Error(status);
  }

  const std::shared_ptr<const cuda::CudaApi> api_;
  const int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  bool is_current_ = false;
  CUstream stream_ = nullptr;
  CUevent began_ = nullptr, ended_ = nullptr;
  std::string name_;
  std::uint64_t identity_ = 0;
  std::size_t cache_bytes_ = 0;
  std::unique_ptr<FloorKernels> kernels_;  // where a floor is measured
};

CudaBuffers::~CudaBuffers() {
  if (stream_ != nullptr) {
    api_->StreamSynchronize(stream_);
    api_->StreamDestroy(stream_);
  }
  kernels_.reset();
  for (CUevent event : {began_, ended_}) {
    if (event != nullptr) api_->EventDestroy(event);
  }
  CUcontext popped = nullptr;
  if (is_current_) api_->CtxPopCurrent(&popped);
  if (context_ != nullptr) api_->DevicePrimaryCtxRelease(device_);
}

Status CudaBuffers::describe() {
  std::array<char, 256> text{};
  UNISONO_TRY(check(api_->DeviceGetName(text.data(), text.size() - 1, device_), "the name"));
  name_ = text.data();
  CUuuid uuid{};
  UNISONO_TRY(check(api_->DeviceGetUuid(&uuid, device_), "the UUID"));
  identity_ = 14695981039346656037u;  // FNV-1a
  for (const char byte : uuid.bytes) {
    identity_ = (identity_ ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  }
  int bytes = 0;
  UNISONO_TRY(check(api_->DeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device_),
                    "the size of the cache"));
  cache_bytes_ = bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{64} << 20;
  return {};
}

Status CudaBuffers::prepare() {
  UNISONO_TRY(check(api_->DeviceGet(&device_, ordinal_), "asking for the device"));
  UNISONO_TRY(describe());
  UNISONO_TRY(check(api_->DevicePrimaryCtxRetain(&context_, device_), "making the context"));
  UNISONO_TRY(check(api_->CtxPushCurrent(context_), "making the context current"));
  is_current_ = true;
  UNISONO_TRY(check(api_->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
                    "making a stream"));
  for (CUevent* event : {&began_, &ended_}) {
    UNISONO_TRY(check(api_->EventCreate(event, CU_EVENT_DEFAULT), "making an event"));
  }
  return {};
}

const FloorKernels& CudaBuffers::kernels() {
  if (kernels_ == nullptr) {
    auto loaded = FloorKernels::load(api_, device_, context_);
    if (!loaded) throw Error(loaded.error());
    kernels_ = std::move(*loaded);
  }
  return *kernels_;
}

std::size_t CudaBuffers::free_bytes() const {
  std::size_t free = 0, total = 0;
  must(api_->MemGetInfo(&free, &total), "asking for the free memory");
  return free;
}

std::byte* CudaBuffers::allocate(std::size_t bytes) {
  CUdeviceptr memory = 0;
  const Status status =
      check(api_->MemAlloc(&memory, bytes), "allocating " + std::to_string(bytes) + " bytes");
  if (!status) {
    throw Error(Status(status.code(), std::string(status.message()) +
                                          "; a smaller --maxbytes or --mode hot needs less"));
  }
  return reinterpret_cast<std::byte*>(memory);
}

void CudaBuffers::release(std::byte* memory) {
  must(api_->MemFree(reinterpret_cast<CUdeviceptr>(memory)), "freeing memory");
}

void CudaBuffers::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  must(api_->MemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                         bytes, stream_),
       "copying");
}

void CudaBuffers::fill(std::byte* to, unsigned char value, std::size_t bytes) {
  if (bytes == 0) return;
  must(api_->MemsetD8Async(reinterpret_cast<CUdeviceptr>(to), value, bytes, stream_), "filling");
}

double CudaBuffers::stop_clock() {
  must(api_->EventRecord(ended_, stream_), "recording an event");
  must(api_->EventSynchronize(ended_), "waiting for an event");
  float milliseconds = 0;
  must(api_->EventElapsedTime(&milliseconds, began_, ended_), "reading the clock");
  return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace

Result<int> count_devices(const CudaConfig& config) {
  UNISONO_ASSIGN(const auto survey, cuda::survey_devices(config.use, config.library));
  if (survey.devices.empty()) {
    return Status(ErrorCode::kUnsupported,
                  "the driver has no device; see nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  return static_cast<int>(survey.devices.size());
}

Result<std::unique_ptr<DeviceBuffers>> DeviceBuffers::open(const CudaConfig& config, int ordinal) {
  UNISONO_ASSIGN(auto api, cuda::load_cuda_driver(config.library));
  UNISONO_TRY(api->check(api->Init(0), "initialising the CUDA driver"));
  auto buffers = std::make_unique<CudaBuffers>(std::move(api), ordinal);
  UNISONO_TRY(buffers->prepare());
  return std::unique_ptr<DeviceBuffers>(std::move(buffers));
}

}  // namespace unisono::perf
