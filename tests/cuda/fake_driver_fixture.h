// What the tests of the fake driver share: a device whose context is current, a stream, two
// kernels. Thread rule: one thread each.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/driver_under_test.h"
#include "tests/support/child_process.h"

namespace unisono::test {

/// The primary context of a device, retained and current; streams and memory made here end with it.
class Gpu {
 public:
  explicit Gpu(int ordinal = 0);
  ~Gpu();
  Gpu(const Gpu&) = delete;

  CUcontext context() const { return context_; }
  /// Not blocking, unless `flags` say so.
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING, int priority = 0);
  CUevent event();
  CUdeviceptr allocate(std::size_t bytes);
  void free(CUdeviceptr pointer);
  /// Leaves the freeing to the test.
  void forget(CUdeviceptr pointer);
  /// Ready to be launched without waiting for anything.
  CUfunction function(const char* kernel);

 private:
  CUcontext context_ = nullptr;
  CUdevice device_ = 0;
  CUlibrary library_ = nullptr;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<CUdeviceptr> memory_;
};

/// Kernel "increment": adds `by` to `count` words.
struct Increment {
  std::uint32_t* words = nullptr;
  std::uint64_t count = 0;
  std::uint32_t by = 1;
};
/// Kernel "linger": says that it runs, and runs until it is told to go on.
struct Linger {
  std::uint32_t* words = nullptr;  ///< touched, device memory
  std::uint64_t count = 0;
  std::atomic<int>* running = nullptr;  ///< ordinary memory of the test
  std::atomic<int>* released = nullptr;
};
void register_test_kernels();

CUresult launch(CUfunction function, CUstream stream, const Increment& work);
CUresult launch(CUfunction function, CUstream stream, const Linger& work);

CUdeviceptr address(const void* pointer);
inline std::uint32_t* words_at(CUdeviceptr pointer) {
  return reinterpret_cast<std::uint32_t*>(pointer);
}
/// Through the stream; the words there once everything before is done.
std::vector<std::uint32_t> read_words(CUstream stream, CUdeviceptr pointer, std::size_t count);
void write_words(CUstream stream, CUdeviceptr pointer, const std::vector<std::uint32_t>& words);

/// One mapped allocation of virtual memory management.
struct VirtualMemory {
  CUdeviceptr pointer = 0;
  std::size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
};
constexpr std::size_t kGranularity = std::size_t{2} << 20;
CUmemAllocationProp exportable_memory(int ordinal);
/// Mapped without any rights.
VirtualMemory map_memory(CUmemGenericAllocationHandle handle, std::size_t bytes);
CUresult allow(const VirtualMemory& memory, int ordinal, CUmemAccess_flags flags);
void unmap_memory(const VirtualMemory& memory);

/// This program again in another role, on the same driver, with these variables more.
ChildProcess start(const std::string& role, std::vector<std::string> environment);

/// For roles: prints what is wrong and ends the process with 1 unless it holds.
void require(bool holds, const char* what);

}  // namespace unisono::test
