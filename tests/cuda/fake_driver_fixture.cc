#include "tests/cuda/fake_driver_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace unisono::test {
namespace {

using fake_cuda::Access;
using fake_cuda::Dimensions;
using fake_cuda::Translator;

void translate_increment(void* parameters, Translator& translator) {
  auto* work = static_cast<Increment*>(parameters);
  work->words =
      static_cast<std::uint32_t*>(translator.at(work->words, work->count * 4, Access::kWrite));
}

void run_increment(const void* parameters, Dimensions, Dimensions) {
  const auto* work = static_cast<const Increment*>(parameters);
  for (std::uint64_t i = 0; i < work->count; ++i) work->words[i] += work->by;
}

void translate_linger(void* parameters, Translator& translator) {
  auto* work = static_cast<Linger*>(parameters);
  work->words =
      static_cast<std::uint32_t*>(translator.at(work->words, work->count * 4, Access::kRead));
}

void run_linger(const void* parameters, Dimensions, Dimensions) {
  const auto* work = static_cast<const Linger*>(parameters);
  work->running->store(1);
  while (work->released->load() == 0) std::this_thread::yield();
}

template <typename Work>
CUresult launch_one(CUfunction function, CUstream stream, Work work) {
  void* parameters[]{&work};
  const CUresult result =
      driver()->LaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  // The launch has its copy.
  work = {};
  return result;
}

}  // namespace

void register_test_kernels() {
  if (fake() == nullptr) return;
  fake()->register_kernel({"increment", sizeof(Increment), &translate_increment, &run_increment});
  fake()->register_kernel({"linger", sizeof(Linger), &translate_linger, &run_linger});
}

Gpu::Gpu(int ordinal) {
  register_test_kernels();
  const auto& api = *driver();
  EXPECT_EQ(api.DeviceGet(&device_, ordinal), CUDA_SUCCESS);
  EXPECT_EQ(api.DevicePrimaryCtxRetain(&context_, device_), CUDA_SUCCESS);
  EXPECT_EQ(api.CtxPushCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(api.LibraryLoadData(&library_, "image", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
}

Gpu::~Gpu() {
  const auto& api = *driver();
  for (CUstream stream : streams_) api.StreamDestroy(stream);
  for (CUevent event : events_) api.EventDestroy(event);
  for (CUdeviceptr pointer : memory_) api.MemFree(pointer);
  EXPECT_EQ(api.LibraryUnload(library_), CUDA_SUCCESS);
  CUcontext popped = nullptr;
  EXPECT_EQ(api.CtxPopCurrent(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, context_);
  EXPECT_EQ(api.DevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
}

CUstream Gpu::stream(unsigned flags, int priority) {
  CUstream stream = nullptr;
  EXPECT_EQ(driver()->StreamCreateWithPriority(&stream, flags, priority), CUDA_SUCCESS);
  streams_.push_back(stream);
  return stream;
}

CUevent Gpu::event() {
  CUevent event = nullptr;
  EXPECT_EQ(driver()->EventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  events_.push_back(event);
  return event;
}

CUdeviceptr Gpu::allocate(std::size_t bytes) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(driver()->MemAlloc(&pointer, bytes), CUDA_SUCCESS);
  memory_.push_back(pointer);
  return pointer;
}

void Gpu::free(CUdeviceptr pointer) {
  forget(pointer);
  EXPECT_EQ(driver()->MemFree(pointer), CUDA_SUCCESS);
}

void Gpu::forget(CUdeviceptr pointer) {
  memory_.erase(std::find(memory_.begin(), memory_.end(), pointer));
}

CUfunction Gpu::function(const char* kernel_name) {
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(driver()->LibraryGetKernel(&kernel, library_, kernel_name), CUDA_SUCCESS);
  EXPECT_EQ(driver()->KernelGetFunction(&function, kernel), CUDA_SUCCESS);
  EXPECT_EQ(driver()->FuncLoad(function), CUDA_SUCCESS);
  return function;
}

CUresult launch(CUfunction function, CUstream stream, const Increment& work) {
  return launch_one(function, stream, work);
}

CUresult launch(CUfunction function, CUstream stream, const Linger& work) {
  return launch_one(function, stream, work);
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

std::vector<std::uint32_t> read_words(CUstream stream, CUdeviceptr pointer, std::size_t count) {
  std::vector<std::uint32_t> words(count);
  EXPECT_EQ(driver()->MemcpyAsync(address(words.data()), pointer, count * 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  return words;
}

void write_words(CUstream stream, CUdeviceptr pointer, const std::vector<std::uint32_t>& words) {
  EXPECT_EQ(driver()->MemcpyAsync(pointer, address(words.data()), words.size() * 4, stream),
            CUDA_SUCCESS);
}

CUmemAllocationProp exportable_memory(int ordinal) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = ordinal;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return wanted;
}

VirtualMemory map_memory(CUmemGenericAllocationHandle handle, std::size_t bytes) {
  VirtualMemory memory{0, bytes, handle};
  EXPECT_EQ(driver()->MemAddressReserve(&memory.pointer, bytes, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemMap(memory.pointer, bytes, 0, handle, 0), CUDA_SUCCESS);
  return memory;
}

CUresult allow(const VirtualMemory& memory, int ordinal, CUmemAccess_flags flags) {
  CUmemAccessDesc right{};
  right.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  right.location.id = ordinal;
  right.flags = flags;
  return driver()->MemSetAccess(memory.pointer, memory.bytes, &right, 1);
}

void unmap_memory(const VirtualMemory& memory) {
  EXPECT_EQ(driver()->MemUnmap(memory.pointer, memory.bytes), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemAddressFree(memory.pointer, memory.bytes), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemRelease(memory.handle), CUDA_SUCCESS);
}

ChildProcess start(const std::string& role, std::vector<std::string> environment) {
  environment.push_back("UNISONO_CUDA_LIBRARY=" + driver_file());
  return ChildProcess(role, environment);
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::printf("not so: %s\n", what);
  std::fflush(stdout);
  std::_Exit(1);
}

}  // namespace unisono::test
