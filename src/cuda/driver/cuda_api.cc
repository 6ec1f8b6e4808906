#include "cuda/driver/cuda_api.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "base/per_process.h"

namespace unisono::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kVersionMin = 12000;

using GetProcAddress = CUresult (*)(const char* name, void** function, int version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult* found);

// A driver gives the form of a function that was current in the version asked for, and forms differ
// in their parameters: from 13.0 on cuCtxGetDevice takes a context, from 12.5 on cuStreamGetCtx
// writes a second result, while the header's declarations of these names have stayed. So every
// function is asked for as it was in the oldest driver accepted, except those that are younger or
// whose declaration is.
int form_of(std::string_view name) {
  if (name == "cuFuncLoad") return 12040;
#if CUDA_VERSION >= 13000
  if (name == "cuStreamGetCaptureInfo") return 12030;
#endif
  return kVersionMin;
}

class Library {
 public:
  explicit Library(GetProcAddress address_of) : address_of_(address_of) {}

  template <typename Function>
  bool find(const char* name, Function* function) const {
    void* address = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result =
        address_of_(name, &address, form_of(name), CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS) address = nullptr;
    *function = reinterpret_cast<Function>(address);
    return address != nullptr;
  }

  /// The names of required functions that are not there.
  std::string fill(CudaApi* api) const {
    std::string missing;
    const auto require = [&](const char* name, auto* function) {
      if (!find(name, function)) missing += (missing.empty() ? "" : ", ") + std::string(name);
    };
#define UNISONO_CUDA_REQUIRE(name) require("cu" #name, &api->name);
    UNISONO_CUDA_REQUIRED(UNISONO_CUDA_REQUIRE)
#undef UNISONO_CUDA_REQUIRE
    // Asked for a form younger than itself, a driver gives the youngest that it knows.
#define UNISONO_CUDA_FIND(name) \
  if (form_of("cu" #name) <= api->version) find("cu" #name, &api->name);
    UNISONO_CUDA_OPTIONAL(UNISONO_CUDA_FIND)
#undef UNISONO_CUDA_FIND
    return missing;
  }

 private:
  const GetProcAddress address_of_;
};

Status too_old(const std::string& file, const std::string& found) {
  return Status(ErrorCode::kUnsupported, file + " is a driver for " + found +
                                             ", and CUDA 12.0 is needed: install NVIDIA driver 525 "
                                             "or newer (UNISONO_CUDA=off does without the GPU)");
}

Result<std::shared_ptr<const CudaApi>> load(const std::string& file) {
  // Never closed: a driver keeps threads of its own.
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* words = dlerror();
    return Status(ErrorCode::kUnsupported,
                  "no CUDA driver (" + std::string(words ? words : file) +
                      "): install NVIDIA's driver; in a container, start it with access to GPUs");
  }
  const auto address_of = reinterpret_cast<GetProcAddress>(dlsym(handle, "cuGetProcAddress_v2"));
  // The function itself came with 12.0.
  if (address_of == nullptr) return too_old(file, "a CUDA older than 12.0");
  const Library library(address_of);
  auto api = std::make_shared<CudaApi>();
  if (!library.find("cuDriverGetVersion", &api->DriverGetVersion) ||
      api->DriverGetVersion(&api->version) != CUDA_SUCCESS) {
    return Status(ErrorCode::kUnsupported,
                  file + " does not tell its version: it is no CUDA driver");
  }
  if (api->version < kVersionMin) {
    return too_old(file, "CUDA " + std::to_string(api->version / 1000) + "." +
                             std::to_string(api->version % 1000 / 10));
  }
  if (const std::string missing = library.fill(api.get()); !missing.empty()) {
    return Status(ErrorCode::kUnsupported, file + " lacks " + missing +
                                               ": it is incomplete or no CUDA driver; install "
                                               "NVIDIA's driver anew");
  }
  return std::shared_ptr<const CudaApi>(std::move(api));
}

struct Drivers {
  std::mutex mutex;
  std::map<std::string, Result<std::shared_ptr<const CudaApi>>> tables;
};
constinit PerProcess<Drivers> drivers_of_process;

}  // namespace

Status CudaApi::check(CUresult result, const std::string& what) const {
  if (result == CUDA_SUCCESS) return Status();
  const char* name = nullptr;
  const char* words = nullptr;
  // Both leave null for a number that this driver does not know.
  if (GetErrorName(result, &name) != CUDA_SUCCESS) name = nullptr;
  if (GetErrorString(result, &words) != CUDA_SUCCESS) words = nullptr;
  std::string message = what + ": ";
  message += name != nullptr ? name : "CUDA error " + std::to_string(static_cast<int>(result));
  if (words != nullptr) message += std::string(" (") + words + ")";
  return Status(
      result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kOutOfResources : ErrorCode::kSystem,
      message);
}

Result<std::shared_ptr<const CudaApi>> load_cuda_driver(const std::string& file) {
  const std::string name = file.empty() ? kLibrary : file;
  Drivers& drivers = drivers_of_process.get();
  const std::lock_guard lock(drivers.mutex);
  const auto known = drivers.tables.find(name);
  if (known != drivers.tables.end()) return known->second;
  return drivers.tables.emplace(name, load(name)).first->second;
}

// One is made at each look at a call: words are made for a failure alone.
CurrentContext::CurrentContext(const CudaApi& api, CUcontext context) : api_(api) {
  const CUresult pushed = api.CtxPushCurrent(context);
  if (pushed != CUDA_SUCCESS) status_ = api.check(pushed, "making a context current");
}

CurrentContext::~CurrentContext() {
  if (!status_) return;
  CUcontext popped = nullptr;
  api_.CtxPopCurrent(&popped);
}

}  // namespace unisono::cuda
