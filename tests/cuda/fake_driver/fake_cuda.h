// What the fake driver offers to tests beside the driver's own functions: host twins of kernels,
// counts of what is alive, streams that stand still. One C function, `fake_cuda_functions`, gives
// this table; tests reach it through tests/cuda/driver_under_test.h.
//
// Thread rule: any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

/// How a kernel may touch memory.
enum class Access : std::uint8_t { kRead, kWrite };

/// Given to `translate` of a kernel twin: turns a pointer of the kernel's parameters into one that
/// host code may use while the kernel runs. Null where the device may not touch these bytes (the
/// launch then fails as on hardware); null pointers and zero bytes give null without failing.
class Translator {
 public:
  virtual ~Translator() = default;
  virtual void* at(const void* pointer, std::size_t bytes, Access access) = 0;
};

struct Dimensions {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

/// A kernel's host twin. The kernel takes one structure by value, of `parameter_bytes`.
struct KernelTwin {
  const char* name = nullptr;
  std::size_t parameter_bytes = 0;
  /// Replaces every pointer of the structure by what the translator gives for it. Called on the
  /// stream's thread just before `run`.
  void (*translate)(void* parameters, Translator& translator) = nullptr;
  /// The whole grid.
  void (*run)(const void* parameters, Dimensions grid, Dimensions block) = nullptr;
};

/// Everything since the library was loaded, or alive now.
struct Counts {
  std::uint64_t allocations = 0;    ///< alive: device memory of cuMemAlloc
  std::uint64_t host_ranges = 0;    ///< alive: of cuMemHostAlloc and cuMemHostRegister
  std::uint64_t virtual_parts = 0;  ///< alive: reservations, mappings, allocation handles
  std::uint64_t imports = 0;        ///< alive: opened IPC handles
  std::uint64_t streams = 0;        ///< alive
  std::uint64_t events = 0;         ///< alive
  std::uint64_t libraries = 0;      ///< alive
  std::uint64_t graphs = 0;         ///< alive: graphs and executable graphs
  std::uint64_t contexts = 0;       ///< retained and not released
  std::uint64_t launches = 0;       ///< kernels that ran
  std::uint64_t copied_bytes = 0;   ///< by copies that ran
  std::uint64_t errors = 0;         ///< loud lines on stderr
};

struct FakeCudaFunctions {
  /// The strings are copied. A name may be registered again; the last one holds.
  void (*register_kernel)(const KernelTwin& twin);
  Counts (*counts)();
  /// Calls of a driver function so far ("cuMemAlloc"), over all threads.
  std::uint64_t (*calls)(const char* function);
  /// Nothing of this stream runs until release_stream(): what is enqueued stays enqueued.
  void (*hold_stream)(CUstream stream);
  void (*release_stream)(CUstream stream);
  /// The memory behind a device range, for a test that wants to look without a copy; null where
  /// there is none.
  void* (*peek)(CUdeviceptr pointer, std::size_t bytes);
  /// Makes the `call`-th call of `function` from now on give `result`, as FAKE_CUDA_FAIL does.
  void (*fail)(const char* function, std::uint64_t call, CUresult result);
  /// One line for each thing that is alive, as the report at the exit has it; for tests of leaks.
  std::uint64_t (*report_leaks)();
};

}  // namespace fake_cuda

/// The only function beside cuGetProcAddress_v2 that the library exports.
extern "C" const fake_cuda::FakeCudaFunctions* fake_cuda_functions();
