#include "tests/cuda/driver_under_test.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace unisono::test {
namespace {

std::string choose_file() {
  setenv("UNISONO_CUDA_LIBRARY", UNISONO_FAKE_CUDA_FILE, 0);
  return std::getenv("UNISONO_CUDA_LIBRARY");
}

// Before main(), so that everything that reads the environment sees it.
[[maybe_unused]] const std::string& chosen_early = driver_file();

void* symbol(const char* name) {
  void* library = dlopen(driver_file().c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : dlsym(library, name);
}

}  // namespace

const std::string& driver_file() {
  static const std::string* const file = new std::string(choose_file());
  return *file;
}

std::shared_ptr<const cuda::CudaApi> driver() {
  const auto api = cuda::load_cuda_driver(driver_file());
  if (!api) {
    std::fprintf(stderr, "no driver to test with: %s\n", api.error().message().c_str());
    std::abort();
  }
  if (const Status status = (*api)->check((*api)->Init(0), "cuInit"); !status) {
    std::fprintf(stderr, "no driver to test with: %s\n", status.message().c_str());
    std::abort();
  }
  return *api;
}

namespace {

int count_here() {
  int count = 0;
  return driver()->DeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

bool is_driver_started() {
  const auto api = cuda::load_cuda_driver(driver_file());
  CUcontext context = nullptr;
  return api && (*api)->CtxGetCurrent(&context) != CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace

// A driver takes no fork once it has started, and a test that forks must not have started it.
int device_count() {
  static const int counted = [] {
    if (is_driver_started()) return count_here();
    const pid_t child = fork();
    if (child == 0) _exit(count_here());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  }();
  return counted;
}

const fake_cuda::FakeCudaFunctions* fake() {
  const auto functions =
      reinterpret_cast<decltype(&fake_cuda_functions)>(symbol("fake_cuda_functions"));
  return functions == nullptr ? nullptr : functions();
}

void* driver_function(const char* name, int form) {
  using GetProcAddress =
      CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto get = reinterpret_cast<GetProcAddress>(symbol("cuGetProcAddress_v2"));
  void* function = nullptr;
  CUdriverProcAddressQueryResult found{};
  if (get == nullptr || get(name, &function, form, 0, &found) != CUDA_SUCCESS) return nullptr;
  return function;
}

}  // namespace unisono::test
