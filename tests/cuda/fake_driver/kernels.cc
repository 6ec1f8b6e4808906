#include "tests/cuda/fake_driver/kernels.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda/fake_driver/capture.h"
#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/memory.h"
#include "tests/cuda/fake_driver/streams.h"

struct CUkern_st {
  fake_cuda::KernelTwin twin;
  std::string name;
  CUlib_st* library = nullptr;
  std::map<CUctx_st*, CUfunc_st*> functions;
};

struct CUfunc_st {
  CUkern_st* kernel = nullptr;
  CUctx_st* context = nullptr;
  bool loaded = false;
};

struct CUlib_st {
  std::map<std::string, CUkern_st*> kernels;
};

namespace fake_cuda {
namespace {

struct Kernels {
  std::map<std::string, KernelTwin> twins;
  std::set<CUlib_st*> libraries;
  // Loaded ones too. Nothing of a library is ever freed, so that a stale handle is known as such.
  std::vector<CUlib_st*> all_libraries;
  std::set<CUfunc_st*> functions;
  std::atomic<std::uint64_t> launches{0};
};

Kernels& kernels() {
  static Kernels* const value = new Kernels;
  return *value;
}

// FAKE_CUDA_SLICE: while kernels of one process run, no other process's do, as on a GPU without
// MPS. A kernel that waits for another process's kernel never ends here.
class Slice {
 public:
  Slice() {
    if (settings().slice_file.empty()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (file_ < 0) file_ = open(settings().slice_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (running_++ == 0) flock(file_, LOCK_EX);
  }
  ~Slice() {
    if (settings().slice_file.empty()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--running_ == 0) flock(file_, LOCK_UN);
  }
  Slice(const Slice&) = delete;

 private:
  static inline std::mutex& mutex_ = *new std::mutex;
  static inline int file_ = -1;
  static inline int running_ = 0;
};

CUresult library_load(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned,
                      CUlibraryOption*, void**, unsigned) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = new CUlib_st;
  kernels().libraries.insert(*library);
  kernels().all_libraries.push_back(*library);
  return CUDA_SUCCESS;
}

CUresult library_unload(CUlibrary library) {
  const Lock lock(machine().mutex);
  if (kernels().libraries.erase(library) == 0) {
    complain("cuLibraryUnload of a library that is not loaded");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  for (const auto& [name, kernel] : library->kernels) {
    for (const auto& [context, function] : kernel->functions) kernels().functions.erase(function);
  }
  return CUDA_SUCCESS;
}

CUresult library_get_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
  const Lock lock(machine().mutex);
  if (!kernels().libraries.contains(library)) return CUDA_ERROR_INVALID_HANDLE;
  const auto twin = kernels().twins.find(name);
  if (twin == kernels().twins.end()) return CUDA_ERROR_NOT_FOUND;
  CUkern_st*& known = library->kernels[name];
  if (known == nullptr) {
    known = new CUkern_st;
    known->name = name;
    known->library = library;
  }
  known->twin = twin->second;
  *kernel = known;
  return CUDA_SUCCESS;
}

CUresult kernel_get_function(CUfunction* function, CUkernel kernel) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (!kernels().libraries.contains(kernel->library)) return CUDA_ERROR_INVALID_HANDLE;
  CUfunc_st*& known = kernel->functions[context];
  if (known == nullptr) {
    known = new CUfunc_st;
    known->kernel = kernel;
    known->context = context;
    // Before cuFuncLoad existed nobody could ask for it.
    known->loaded = settings().version < 12040 || settings().missing.contains("cuFuncLoad");
    kernels().functions.insert(known);
  }
  *function = known;
  return CUDA_SUCCESS;
}

CUresult function_load(CUfunction function) {
  const Lock lock(machine().mutex);
  if (!kernels().functions.contains(function)) return CUDA_ERROR_INVALID_HANDLE;
  function->loaded = true;
  return CUDA_SUCCESS;
}

void run_kernel(const CUfunc_st& function, std::vector<char> parameters, Dimensions grid,
                Dimensions block) {
  const KernelTwin& twin = function.kernel->twin;
  Uses uses(*function.context, "kernel " + function.kernel->name);
  if (twin.translate != nullptr) twin.translate(parameters.data(), uses);
  if (uses.failed()) return;
  const Slice slice;
  twin.run(parameters.data(), grid, block);
  ++kernels().launches;
}

bool is_possible(Dimensions grid, Dimensions block) {
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffffu && grid.y <= 65535 &&
         grid.z <= 65535 && threads > 0 && threads <= 1024 && block.z <= 64;
}

// Loading a function at its first launch waits for the device. Nothing says so in the calls, and
// whoever launches behind a stream that stands still hangs: cuFuncLoad beforehand.
CUresult load_lazily(CUfunc_st& function, Lock& lock) {
  if (function.loaded) return CUDA_SUCCESS;
  function.loaded = true;
  return drain_streams_of(*function.context, lock);
}

CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                CUstream handle, void** parameters, void** extra) {
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  StreamPointer stream;
  if (const CUresult result = enter_stream(handle, &context, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (!kernels().functions.contains(function) || function->context != context) {
    complain("cuLaunchKernel of a function of another context or of an unloaded library");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const Dimensions grid{grid_x, grid_y, grid_z};
  const Dimensions block{block_x, block_y, block_z};
  if (!is_possible(grid, block) || shared_bytes > 227 * 1024 || extra != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::size_t bytes = function->kernel->twin.parameter_bytes;
  if (bytes > 0 && (parameters == nullptr || parameters[0] == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // By value: whatever the caller does with his structure afterwards.
  std::vector<char> copy(bytes);
  if (bytes > 0) std::memcpy(copy.data(), parameters[0], bytes);
  if (const CUresult result = load_lazily(*function, lock); result != CUDA_SUCCESS) return result;
  return enqueue(*stream, {.run = [function, copy = std::move(copy), grid,
                                   block] { run_kernel(*function, copy, grid, block); },
                           .kind = QueueKind::kKernels});
}

}  // namespace

void register_kernel(const KernelTwin& twin) {
  const Lock lock(machine().mutex);
  kernels().twins[twin.name] = twin;
}

std::uint64_t count_launches() { return kernels().launches; }

std::uint64_t count_libraries() { return kernels().libraries.size(); }

std::uint64_t report_library_leaks() {
  for (std::size_t i = 0; i < kernels().libraries.size(); ++i) complain("leak: a loaded library");
  return kernels().libraries.size();
}

std::vector<Entry> kernel_entries() {
  return {entry<&library_load>("cuLibraryLoadData", 12000),
          entry<&library_unload>("cuLibraryUnload", 12000),
          entry<&library_get_kernel>("cuLibraryGetKernel", 12000),
          entry<&kernel_get_function>("cuKernelGetFunction", 12000),
          entry<&function_load>("cuFuncLoad", 12040),
          entry<&launch>("cuLaunchKernel", 4000)};
}

}  // namespace fake_cuda
