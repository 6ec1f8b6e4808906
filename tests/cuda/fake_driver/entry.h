// How a driver function of the fake is found, counted and made to fail. Each file of the fake
// gives a list of its entries; entry.cc joins them into what cuGetProcAddress answers from.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace fake_cuda {

struct CallSlot {
  std::string name;
  std::atomic<std::uint64_t> calls{0};
};

struct Entry {
  const char* name = nullptr;
  int since = 0;  ///< the driver version in which this form of the function appeared
  int until = 0;  ///< the version in which another form replaced it; 0: none did
  void* function = nullptr;
  CallSlot* slot = nullptr;
};

/// Counts and traces a call; what FAKE_CUDA_FAIL or a test wants it to give instead of running.
CUresult before_call(CallSlot& slot);

template <auto kFunction>
struct Counted;

template <typename... Arguments, CUresult (*kFunction)(Arguments...)>
struct Counted<kFunction> {
  static inline CallSlot* slot = nullptr;
  static CUresult call(Arguments... arguments) {
    if (const CUresult injected = before_call(*slot); injected != CUDA_SUCCESS) return injected;
    try {
      return kFunction(arguments...);
    } catch (const std::bad_alloc&) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
};

template <auto kFunction>
Entry entry(const char* name, int since, int until = 0) {
  Counted<kFunction>::slot = new CallSlot{name};
  return {name, since, until, reinterpret_cast<void*>(&Counted<kFunction>::call),
          Counted<kFunction>::slot};
}

std::vector<Entry> context_entries();
std::vector<Entry> device_entries();
std::vector<Entry> memory_entries();
std::vector<Entry> pointer_entries();
std::vector<Entry> virtual_memory_entries();
std::vector<Entry> ipc_entries();
std::vector<Entry> transfer_entries();
std::vector<Entry> stream_entries();
std::vector<Entry> event_entries();
std::vector<Entry> memop_entries();
std::vector<Entry> kernel_entries();
std::vector<Entry> capture_entries();

}  // namespace fake_cuda
