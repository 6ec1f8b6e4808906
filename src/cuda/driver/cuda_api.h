// The CUDA driver's functions that unisono calls, found by dlopen at run time, so that one binary
// starts on machines with and without a driver. No CUDA runtime library, no link to libcuda: the
// table is also the seam at which tests put a driver of their own (UNISONO_CUDA_LIBRARY).
//
// Names, arguments, results and thread rules are the driver's own (CUDA Driver API reference),
// without the prefix `cu`.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "unisono/export.h"

#if CUDA_VERSION < 12040  // whose headers do not know it
extern "C" CUresult CUDAAPI cuFuncLoad(CUfunction function);
#endif

// clang-format off
// Every function once: X(name without prefix). Without one of the first list there is no GPU use;
// each of the second may be missing (null), and its user says what is then not possible.
#define UNISONO_CUDA_REQUIRED(X) \
  X(Init) X(DriverGetVersion) X(GetErrorName) X(GetErrorString) X(DeviceGetCount) X(DeviceGet) \
  X(DeviceGetName) X(DeviceGetUuid) X(DeviceGetAttribute) X(DeviceTotalMem) \
  X(DeviceGetPCIBusId) X(DevicePrimaryCtxRetain) X(DevicePrimaryCtxRelease) X(CtxGetCurrent) \
  X(CtxPushCurrent) X(CtxPopCurrent) X(CtxGetDevice) X(PointerGetAttributes) \
  X(MemGetAddressRange) X(MemAlloc) X(MemFree) X(MemGetInfo) X(MemHostAlloc) X(MemFreeHost) \
  X(MemHostRegister) X(MemHostUnregister) X(MemHostGetDevicePointer) X(MemcpyAsync) \
  X(MemsetD8Async) X(StreamCreateWithPriority) X(StreamDestroy) X(StreamSynchronize) \
  X(StreamQuery) X(StreamWaitEvent) X(StreamGetCtx) X(StreamIsCapturing) \
  X(EventCreate) X(EventDestroy) X(EventRecord) X(EventQuery) X(EventSynchronize) \
  X(EventElapsedTime) X(LibraryLoadData) X(LibraryUnload) X(LibraryGetKernel) \
  X(KernelGetFunction) X(LaunchKernel)
#define UNISONO_CUDA_OPTIONAL(X) \
  X(StreamBatchMemOp) X(StreamGetCaptureInfo) X(FuncLoad) X(ThreadExchangeStreamCaptureMode) \
  X(DevicePrimaryCtxGetState) X(DeviceCanAccessPeer) X(CtxEnablePeerAccess) \
  X(MemAddressReserve) X(MemAddressFree) X(MemCreate) X(MemRelease) X(MemMap) X(MemUnmap) \
  X(MemSetAccess) X(MemPoolSetAccess) X(MemGetAllocationGranularity) \
  X(MemExportToShareableHandle) X(MemImportFromShareableHandle) X(MemRetainAllocationHandle) \
  X(MemGetAllocationPropertiesFromHandle) X(MemGetHandleForAddressRange) \
  X(FlushGPUDirectRDMAWrites) X(IpcGetMemHandle) X(IpcOpenMemHandle) \
  X(IpcCloseMemHandle)
// clang-format on

namespace unisono::cuda {

/// One driver library. Immutable after loading; any thread.
struct CudaApi {
#define UNISONO_CUDA_MEMBER(name) decltype(&::cu##name) name = nullptr;
  UNISONO_CUDA_REQUIRED(UNISONO_CUDA_MEMBER)
  UNISONO_CUDA_OPTIONAL(UNISONO_CUDA_MEMBER)
#undef UNISONO_CUDA_MEMBER

  /// cuDriverGetVersion's number: 13000 is 13.0.
  int version = 0;

  /// Ok for CUDA_SUCCESS. Otherwise the driver's own name and words behind `what`, which names the
  /// action and the device: "copying 4096 bytes to device 0: CUDA_ERROR_...". Out of memory becomes
  /// kOutOfResources, everything else kSystem.
  UNISONO_API Status check(CUresult result, const std::string& what) const;
};

/// The driver of this machine (`file` is the value of UNISONO_CUDA_LIBRARY; empty: libcuda.so.1),
/// loaded and asked for its version, not initialised (cuInit takes long, and most programs that
/// only might use a GPU never do). Kept for the life of the process: the same `file` gives the same
/// table. kUnsupported says why there is none: no library, a required function missing, a driver
/// older than the 12.0 that this was written for.
UNISONO_API Result<std::shared_ptr<const CudaApi>> load_cuda_driver(const std::string& file);

/// For cuStreamCreateWithPriority: the driver clamps a priority that is out of its range.
inline constexpr int kHighestStreamPriority = -100;

/// Makes `context` current on this thread and the one before it current again at the end.
class UNISONO_API CurrentContext {
 public:
  CurrentContext(const CudaApi& api, CUcontext context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  const Status& status() const { return status_; }

 private:
  const CudaApi& api_;
  Status status_;
};

}  // namespace unisono::cuda
