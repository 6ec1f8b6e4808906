// One process's driver, and a second process beside it.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "bench/gpu/probe.h"

namespace unisono::gpu_probe {

std::string driver_file() {
  const char* file = std::getenv("UNISONO_CUDA_LIBRARY");
  return file == nullptr || *file == '\0' ? "libcuda.so.1" : file;
}

Gpu::Gpu() {
  auto loaded = cuda::load_cuda_driver(driver_file());
  if (!loaded) throw std::runtime_error(loaded.error().message());
  api_ = *loaded;
  must(api_->Init(0), "initialising the driver");
  must(api_->DeviceGet(&device_, 0), "asking for device 0");
  must(api_->DevicePrimaryCtxRetain(&context_, device_), "making the context");
  must(api_->CtxPushCurrent(context_), "making the context current");
  stream_ = make_stream();
}

Gpu::~Gpu() {
  api_->StreamDestroy(stream_);
  CUcontext popped = nullptr;
  api_->CtxPopCurrent(&popped);
  api_->DevicePrimaryCtxRelease(device_);
}

void Gpu::must(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return;
  throw std::runtime_error(api_->check(result, what).message());
}

CUstream Gpu::make_stream() const {
  CUstream stream = nullptr;
  must(api_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), "making a stream");
  return stream;
}

CUevent Gpu::make_event() const {
  CUevent event = nullptr;
  must(api_->EventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event");
  return event;
}

void* Gpu::find_function(const char* name) const {
  using Find = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void* library = dlopen(driver_file().c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto find =
      library == nullptr ? nullptr : reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"));
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  if (find == nullptr || find(name, &function, 12000, 0, &found) != CUDA_SUCCESS) {
    throw std::runtime_error(fmt::format("the driver has no {}", name));
  }
  return function;
}

namespace {
constexpr std::size_t kSharedBytes = 4096;
}  // namespace

SharedPage::SharedPage()
    : page_(
          mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  if (page_ == MAP_FAILED) throw std::runtime_error("no page to share");
}

SharedPage::~SharedPage() { munmap(page_, kSharedBytes); }

CUdeviceptr SharedPage::open(const Gpu& gpu) const {
  gpu.must(gpu->MemHostRegister(page_, kSharedBytes, CU_MEMHOSTREGISTER_DEVICEMAP), "registering");
  CUdeviceptr on_device = 0;
  gpu.must(gpu->MemHostGetDevicePointer(&on_device, page_, 0), "asking for the page's address");
  return on_device;
}

void SharedPage::close(const Gpu& gpu) const {
  gpu.must(gpu->MemHostUnregister(page_), "unregistering");
}

CUstreamBatchMemOpParams write_value(CUdeviceptr word, std::uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = word;
  operation.writeValue.value = value;
  return operation;
}

CUstreamBatchMemOpParams wait_value(CUdeviceptr word, std::uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = word;
  operation.waitValue.value = value;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return operation;
}

void batch(const Gpu& gpu, CUstream stream, std::vector<CUstreamBatchMemOpParams> operations) {
  if (gpu->StreamBatchMemOp == nullptr) throw std::runtime_error("no stream memory operations");
  gpu.must(
      gpu->StreamBatchMemOp(stream, static_cast<unsigned>(operations.size()), operations.data(), 0),
      "stream memory operations");
}

void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

void run_two(const std::function<void(int)>& first, const std::function<void(int)>& second) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::runtime_error(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    end_with(parent);
    close(ends[0]);
    try {
      second(ends[1]);
    } catch (const std::exception& error) {
      answer("failed", std::string("second process: ") + error.what());
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  std::exception_ptr failure;
  try {
    first(ends[0]);
  } catch (...) {
    failure = std::current_exception();
  }
  // The other end sees it, should it still wait for a message.
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (failure) std::rethrow_exception(failure);
  if (status != 0) throw std::runtime_error("the second process failed");
}

void send_bytes(int socket, const void* data, std::size_t bytes) {
  if (send(socket, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) {
    throw std::runtime_error(fmt::format("send: {}", std::strerror(errno)));
  }
}

void receive_bytes(int socket, void* data, std::size_t bytes) {
  if (recv(socket, data, bytes, 0) != static_cast<ssize_t>(bytes)) {
    throw std::runtime_error("the other process left");
  }
}

double now_us() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

}  // namespace unisono::gpu_probe
