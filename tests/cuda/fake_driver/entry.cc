// The library's exports: cuGetProcAddress_v2, and the functions for tests. A real libcuda exports
// every function; here dlsym finds none, because what it finds there is often an older form.
#include "tests/cuda/fake_driver/entry.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "tests/cuda/fake_driver/capture.h"
#include "tests/cuda/fake_driver/fake_cuda.h"
#include "tests/cuda/fake_driver/kernels.h"
#include "tests/cuda/fake_driver/machine.h"
#include "tests/cuda/fake_driver/memory.h"
#include "tests/cuda/fake_driver/report.h"
#include "tests/cuda/fake_driver/streams.h"

namespace fake_cuda {
namespace {

struct Injections {
  std::mutex mutex;
  std::vector<Injection> list = settings().injections;
};

Injections& injections() {
  static Injections* const value = new Injections;
  return *value;
}

const std::vector<Entry>& entries() {
  static const auto* const all = [] {
    auto* list = new std::vector<Entry>;
    for (const auto& part :
         {context_entries(), device_entries(), memory_entries(), pointer_entries(),
          virtual_memory_entries(), ipc_entries(), transfer_entries(), stream_entries(),
          event_entries(), memop_entries(), kernel_entries(), capture_entries()}) {
      list->insert(list->end(), part.begin(), part.end());
    }
    return list;
  }();
  return *all;
}

std::uint64_t calls(const char* function) {
  std::uint64_t sum = 0;
  for (const Entry& entry : entries()) {
    if (std::strcmp(entry.name, function) == 0) sum += entry.slot->calls;
  }
  return sum;
}

void fail(const char* function, std::uint64_t call, CUresult result) {
  const std::lock_guard<std::mutex> lock(injections().mutex);
  injections().list.push_back({function, calls(function) + call, result});
}

void* peek(CUdeviceptr pointer, std::size_t bytes) {
  const Lock lock(machine().mutex);
  const Mapping* mapping = find_mapping(pointer);
  if (mapping == nullptr || pointer + bytes > mapping->base + mapping->bytes) return nullptr;
  return alias_of(pointer);
}

CUresult get_address(const char* symbol, void** function, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult* status) {
  CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  *function = nullptr;
  if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) {
    complain(std::string(symbol) + " is asked for with the default stream of each thread");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const int known = std::min(version, settings().version);
  for (const Entry& entry : entries()) {
    if (std::strcmp(entry.name, symbol) != 0 || settings().missing.contains(symbol)) continue;
    if (entry.since > settings().version) continue;
    if (entry.since > version) {
      if (*function == nullptr) result = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      continue;
    }
    if (entry.until != 0 && known >= entry.until) continue;
    *function = entry.function;
    result = CU_GET_PROC_ADDRESS_SUCCESS;
  }
  if (status != nullptr) *status = result;
  return result == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult before_call(CallSlot& slot) {
  const std::uint64_t call = ++slot.calls;
  if (settings().trace) {
    const std::string line = "fake CUDA driver: call " + std::to_string(call) + " of " + slot.name;
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  const std::lock_guard<std::mutex> lock(injections().mutex);
  for (const Injection& injection : injections().list) {
    if (injection.function == slot.name && injection.call == call) return injection.result;
  }
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(
    const char* symbol, void** function, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult* status) {
  return fake_cuda::get_address(symbol, function, version, flags, status);
}

extern "C" __attribute__((visibility("default"))) const fake_cuda::FakeCudaFunctions*
fake_cuda_functions() {
  using namespace fake_cuda;
  static const FakeCudaFunctions functions{&register_kernel, &count_all, &calls, &hold_stream,
                                           &release_stream,  &peek,      &fail,  &report_leaks};
  return &functions;
}
