// The fake driver as a program meets a real one: none of the tests' own functions, one GPU or as
// many as PLAIN_DRIVER_DEVICES says, and no use in a process that was forked after cuInit. What the
// tests of tests/cuda expect of a real driver is tried on it (run.sh without --rehearse).
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);

/// What tests ask of the fake means nothing to a real driver.
void forget_settings() {
  for (const char* name :
       {"ADDRESSES", "BUFFER_IDS", "DEVICES", "DMA_BUF", "FAIL", "FILE_HANDLES", "MEMOPS",
        "MISSING", "P2P", "PRIORITIES", "QUEUES", "QUEUE_DEPTH", "VERSION"}) {
    unsetenv((std::string("FAKE_CUDA_") + name).c_str());
  }
  // Of the machine, which tests do not choose.
  const char* const devices = std::getenv("PLAIN_DRIVER_DEVICES");
  if (devices != nullptr) setenv("FAKE_CUDA_DEVICES", devices, 1);
}

void* open_driver() {
  forget_settings();
  void* const library = dlopen(UNISONO_PROGRAM_DRIVER, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return library;
}

GetProcAddress look_up() {
  static void* const library = open_driver();
  return reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
}

CUresult (*init_of_fake)(unsigned) = nullptr;

/// The first process that initialises is the only one that may: its children have its state and
/// none of its threads.
CUresult init(unsigned flags) {
  static std::atomic<pid_t> owner{0};
  pid_t none = 0;
  owner.compare_exchange_strong(none, getpid());
  return owner == getpid() ? init_of_fake(flags) : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(
    const char* name, void** function, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult* found) {
  const CUresult result = look_up()(name, function, version, flags, found);
  if (result == CUDA_SUCCESS && *function != nullptr && std::strcmp(name, "cuInit") == 0) {
    init_of_fake = reinterpret_cast<decltype(init_of_fake)>(*function);
    *function = reinterpret_cast<void*>(&init);
  }
  return result;
}
