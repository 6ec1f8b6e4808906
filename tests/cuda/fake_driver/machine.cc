#include "tests/cuda/fake_driver/machine.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/cuda/fake_driver/entry.h"
#include "tests/cuda/fake_driver/streams.h"

namespace fake_cuda {
namespace {

std::atomic<std::uint64_t> complaint_count{0};
thread_local std::vector<CUctx_st*> context_stack;

CUresult init(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (settings().devices.empty()) return CUDA_ERROR_NO_DEVICE;
  const Lock lock(machine().mutex);
  machine().initialised = true;
  if (settings().trace) {
    const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    std::fprintf(stderr, "fake CUDA driver: begins with %s hardware queues\n",
                 queues == nullptr ? "8" : queues);
  }
  return CUDA_SUCCESS;
}

CUresult driver_get_version(int* version) {
  *version = settings().version;
  return CUDA_SUCCESS;
}

CUresult primary_retain(CUcontext* context, CUdevice device) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  Machine::Primary& primary = machine().primaries[static_cast<std::size_t>(device)];
  if (primary.retained++ == 0) {
    primary.context = new CUctx_st;
    primary.context->ordinal = device;
    primary.context->physical = settings().devices[static_cast<std::size_t>(device)];
    machine().contexts.push_back(primary.context);
    primary.context->legacy = make_legacy_stream(*primary.context);
  }
  *context = primary.context;
  return CUDA_SUCCESS;
}

CUresult primary_release(CUdevice device) {
  Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  Machine::Primary& primary = machine().primaries[static_cast<std::size_t>(device)];
  if (primary.retained == 0) {
    complain("cuDevicePrimaryCtxRelease of device " + std::to_string(device) +
             " more often than it was retained");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (--primary.retained == 0) {
    end_streams_of(*primary.context, lock);
    end_memory_of(*primary.context);
    primary.context->alive = false;
  }
  return CUDA_SUCCESS;
}

CUresult primary_state(CUdevice device, unsigned* flags, int* active) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  *flags = 0;
  *active = machine().primaries[static_cast<std::size_t>(device)].retained > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult context_get_current(CUcontext* context) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  *context = context_stack.empty() ? nullptr : context_stack.back();
  return CUDA_SUCCESS;
}

CUresult context_set_current(CUcontext context) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  if (!context_stack.empty()) context_stack.pop_back();
  if (context != nullptr) context_stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult context_push(CUcontext context) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_initialised(); result != CUDA_SUCCESS) return result;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) {
    complain("cuCtxPushCurrent of a context that was released");
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  context_stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult context_pop(CUcontext* context) {
  const Lock lock(machine().mutex);
  if (context_stack.empty()) {
    complain("cuCtxPopCurrent of an empty stack");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (context != nullptr) *context = context_stack.back();
  context_stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult context_get_device(CUdevice* device) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  *device = context->ordinal;
  return CUDA_SUCCESS;
}

// The form of 13.0. Whoever asks for that version and calls it with one argument gets what the real
// one would do to him: a context read from a register that holds anything.
CUresult context_get_device_of(CUdevice*, CUcontext) {
  complain("cuCtxGetDevice in its form of CUDA 13.0, which takes a context: ask for 12.0");
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult context_synchronize() {
  Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  return drain_streams_of(*context, lock);
}

CUresult can_access_peer(int* can, CUdevice device, CUdevice peer) {
  const Lock lock(machine().mutex);
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_device(peer); result != CUDA_SUCCESS) return result;
  *can = device != peer && settings().peers ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult enable_peer_access(CUcontext peer, unsigned flags) {
  const Lock lock(machine().mutex);
  CUctx_st* context = nullptr;
  if (const CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  if (flags != 0 || peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!peer->alive) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->physical == context->physical) return CUDA_ERROR_INVALID_DEVICE;
  if (!settings().peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (!context->peers.insert(peer->physical).second) {
    return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

Machine& machine() {
  static Machine* const value = new Machine;
  return *value;
}

void complain(const std::string& text) {
  ++complaint_count;
  const std::string line = "fake CUDA driver: " + text + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::uint64_t complaints() { return complaint_count; }

CUresult check_initialised() {
  return machine().initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult check_device(CUdevice device) {
  if (!machine().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const bool exists = device >= 0 && device < static_cast<int>(settings().devices.size());
  return exists ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult state_of(const CUctx_st& context) {
  if (!context.alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context.broken;
}

CUresult current_context(CUctx_st** context) {
  if (!machine().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = context_stack.back();
  return state_of(**context);
}

void break_context(CUctx_st& context, CUresult error, const std::string& text) {
  complain("device " + std::to_string(context.ordinal) + ": " + text);
  if (context.broken == CUDA_SUCCESS) context.broken = error;
  machine().progress.notify_all();
}

std::vector<Entry> context_entries() {
  std::vector<Entry> list{entry<&init>("cuInit", 2000),
                          entry<&driver_get_version>("cuDriverGetVersion", 2020),
                          entry<&primary_retain>("cuDevicePrimaryCtxRetain", 7000),
                          entry<&primary_release>("cuDevicePrimaryCtxRelease", 11000),
                          entry<&primary_state>("cuDevicePrimaryCtxGetState", 7000),
                          entry<&context_get_current>("cuCtxGetCurrent", 4000),
                          entry<&context_set_current>("cuCtxSetCurrent", 4000),
                          entry<&context_push>("cuCtxPushCurrent", 4000),
                          entry<&context_pop>("cuCtxPopCurrent", 4000),
                          entry<&context_get_device>("cuCtxGetDevice", 2000, 13000),
                          entry<&context_get_device_of>("cuCtxGetDevice", 13000),
                          entry<&context_synchronize>("cuCtxSynchronize", 2000),
                          entry<&can_access_peer>("cuDeviceCanAccessPeer", 4000),
                          entry<&enable_peer_access>("cuCtxEnablePeerAccess", 4000)};
  return list;
}

}  // namespace fake_cuda
