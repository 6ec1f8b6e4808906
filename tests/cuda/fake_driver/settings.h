// The environment of the fake driver, read once. All names begin with FAKE_CUDA_, except
// CUDA_VISIBLE_DEVICES, which means what it means to the real one.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace fake_cuda {

constexpr int kDevicesMax = 8;

/// FAKE_CUDA_FAIL="cuMemAlloc:3=2,cuEventCreate:1=999": the third call of cuMemAlloc gives 2.
struct Injection {
  std::string function;
  std::uint64_t call = 0;
  CUresult result = CUDA_SUCCESS;
};

struct Settings {
  int version = 13000;                           ///< FAKE_CUDA_VERSION
  std::vector<int> devices;                      ///< visible ones, as numbers of physical devices
  int physical_devices = 1;                      ///< FAKE_CUDA_DEVICES, 1 to 8
  bool peers = true;                             ///< FAKE_CUDA_P2P=all|none
  std::uint64_t memory_bytes = 2ull << 30;       ///< FAKE_CUDA_MEMORY="512M", of each device
  std::set<std::string> missing;                 ///< FAKE_CUDA_MISSING="cuStreamBatchMemOp,..."
  std::vector<Injection> injections;             ///< FAKE_CUDA_FAIL
  enum class Leaks { kReport, kFail, kIgnore };  ///< FAKE_CUDA_LEAKS=report|fail|ignore
  Leaks leaks = Leaks::kReport;
  std::string slice_file;        ///< FAKE_CUDA_SLICE=file: one process's kernels at a time
  int delay_us = 30;             ///< FAKE_CUDA_DELAY_US: longest random delay before an operation
  std::uint64_t seed = 1;        ///< FAKE_CUDA_SEED
  bool reuse_addresses = false;  ///< FAKE_CUDA_ADDRESSES=fresh|reuse: of freed device memory
  bool stream_memops = true;     ///< FAKE_CUDA_MEMOPS=on|off|32: stream memory operations, ...
  bool wide_memops = true;       ///< ... and those of 64 bits
  bool file_handles = true;      ///< FAKE_CUDA_FILE_HANDLES=on|off: VMM export as a descriptor
  bool buffer_ids = true;        ///< FAKE_CUDA_BUFFER_IDS=on|off|plain: numbers of allocations, ...
  bool window_ids = true;        ///< ... and of memory with handles
  bool dma_buf = false;          ///< FAKE_CUDA_DMA_BUF=on|off
  int queues = 0;  ///< FAKE_CUDA_QUEUES: hardware queues of a context for each kind of work; 0: one
                   ///< for each stream
  std::uint64_t queue_depth = 1024;  ///< FAKE_CUDA_QUEUE_DEPTH: operations in one
  bool page_locking_waits = false;   ///< FAKE_CUDA_PAGE_LOCKING=free|waits: for all streams
  bool trace = false;                ///< FAKE_CUDA_TRACE=1: every call on stderr
};

/// Read on the first call. A value that cannot be understood ends the process with its name.
const Settings& settings();

}  // namespace fake_cuda
