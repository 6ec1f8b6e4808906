// The fake driver's memory is as hostile as a device's: out of the host's reach, and whoever
// touches what he may not breaks his context.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "tests/cuda/fake_driver_fixture.h"

namespace unisono::test {
namespace {

TEST(FakeMemory, KillsHostCodeThatTouchesIt) {
  Gpu gpu;
  const CUdeviceptr pointer = gpu.allocate(4096);
  EXPECT_DEATH(static_cast<void>(*const_cast<volatile std::uint32_t*>(words_at(pointer))), "");
  EXPECT_DEATH(*const_cast<volatile std::uint32_t*>(words_at(pointer)) = 1, "");
}

TEST(FakeMemory, IsReachedByCopiesAndKernels) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUdeviceptr pointer = gpu.allocate(4000);
  write_words(stream, pointer, std::vector<std::uint32_t>(1000, 41));
  ASSERT_EQ(launch(gpu.function("increment"), stream, Increment{words_at(pointer), 1000, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(read_words(stream, pointer, 1000), std::vector<std::uint32_t>(1000, 42));
}

TEST(FakeMemory, IsNotZeroWhenFresh) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  EXPECT_NE(read_words(stream, gpu.allocate(64), 16), std::vector<std::uint32_t>(16, 0));
}

TEST(FakeMemory, BreaksTheContextOfAKernelThatRunsPastAnAllocation) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUdeviceptr pointer = gpu.allocate(4000);
  ASSERT_EQ(launch(gpu.function("increment"), stream, Increment{words_at(pointer), 1001, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  // And so does everything after it.
  CUdeviceptr other = 0;
  EXPECT_EQ(driver()->MemAlloc(&other, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(driver()->MemsetD8Async(pointer, 0, 16, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(FakeMemory, IsWholeAgainInANewContext) {
  {
    Gpu gpu;
    CUstream stream = gpu.stream();
    const CUdeviceptr pointer = gpu.allocate(4);
    ASSERT_EQ(launch(gpu.function("increment"), stream, Increment{words_at(pointer), 2, 1}),
              CUDA_SUCCESS);
    ASSERT_EQ(driver()->StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  Gpu gpu;
  gpu.allocate(4);
}

TEST(FakeMemory, IsGoneOnceFreed) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUdeviceptr pointer = gpu.allocate(64);
  gpu.free(pointer);
  std::uint32_t word = 0;
  EXPECT_EQ(driver()->MemcpyAsync(address(&word), pointer, 4, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver()->MemFree(pointer), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(launch(gpu.function("increment"), stream, Increment{words_at(pointer), 1, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(FakeMemory, OfAPeerNeedsPeerAccess) {
  Gpu owner(0);
  const CUdeviceptr pointer = owner.allocate(64);
  CUstream own = owner.stream();
  write_words(own, pointer, {7});
  ASSERT_EQ(driver()->StreamSynchronize(own), CUDA_SUCCESS);
  {
    Gpu peer(1);
    CUstream stream = peer.stream();
    ASSERT_EQ(launch(peer.function("increment"), stream, Increment{words_at(pointer), 1, 1}),
              CUDA_SUCCESS);
    EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  Gpu peer(1);
  CUstream stream = peer.stream();
  ASSERT_EQ(driver()->CtxEnablePeerAccess(owner.context(), 0), CUDA_SUCCESS);
  EXPECT_EQ(driver()->CtxEnablePeerAccess(owner.context(), 0),
            CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  ASSERT_EQ(launch(peer.function("increment"), stream, Increment{words_at(pointer), 1, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(read_words(stream, pointer, 1), std::vector<std::uint32_t>{8});
}

TEST(FakeMemory, MappedNeedsARightOfTheDevice) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUmemAllocationProp wanted = exportable_memory(0);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(driver()->MemCreate(&handle, 4096, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(driver()->MemCreate(&handle, kGranularity, &wanted, 0), CUDA_SUCCESS);
  const VirtualMemory memory = map_memory(handle, kGranularity);
  ASSERT_EQ(allow(memory, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  write_words(stream, memory.pointer, {5});
  ASSERT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(allow(memory, 0, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  EXPECT_EQ(read_words(stream, memory.pointer, 1), std::vector<std::uint32_t>{5});
  write_words(stream, memory.pointer, {6});
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  unmap_memory(memory);
}

TEST(FakeMemory, MappedSideBySideIsOneRange) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUmemAllocationProp wanted = exportable_memory(0);
  CUdeviceptr base = 0;
  ASSERT_EQ(driver()->MemAddressReserve(&base, 2 * kGranularity, 0, 0, 0), CUDA_SUCCESS);
  CUmemGenericAllocationHandle handles[2] = {};
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(driver()->MemCreate(&handles[i], kGranularity, &wanted, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver()->MemMap(base + i * kGranularity, kGranularity, 0, handles[i], 0),
              CUDA_SUCCESS);
    // The mapping keeps the memory.
    EXPECT_EQ(driver()->MemRelease(handles[i]), CUDA_SUCCESS);
  }
  const VirtualMemory whole{base, 2 * kGranularity, 0};
  ASSERT_EQ(allow(whole, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  write_words(stream, base + kGranularity - 8, {1, 2, 3, 4});
  EXPECT_EQ(read_words(stream, base + kGranularity - 4, 2), (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(driver()->MemUnmap(base + 4096, kGranularity), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver()->MemAddressFree(base, 2 * kGranularity), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver()->MemUnmap(base, 2 * kGranularity), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemAddressFree(base, 2 * kGranularity), CUDA_SUCCESS);
}

TEST(FakeMemory, TakenFromUnderAKernelIsNoticed) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  const CUmemAllocationProp wanted = exportable_memory(0);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(driver()->MemCreate(&handle, kGranularity, &wanted, 0), CUDA_SUCCESS);
  const VirtualMemory memory = map_memory(handle, kGranularity);
  ASSERT_EQ(allow(memory, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  std::atomic<int> running{0};
  std::atomic<int> released{0};
  const std::uint64_t launches = fake()->counts().launches;
  ASSERT_EQ(launch(gpu.function("linger"), stream,
                   Linger{words_at(memory.pointer), 4, &running, &released}),
            CUDA_SUCCESS);
  while (running == 0) std::this_thread::yield();
  unmap_memory(memory);
  released = 1;
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  // The kernel looks at the test's variables until it ends.
  while (fake()->counts().launches == launches) std::this_thread::yield();
}

TEST(FakeMemory, TellsWhatAPointerIs) {
  Gpu gpu;
  const CUdeviceptr pointer = gpu.allocate(10000);
  CUpointer_attribute wanted[]{
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_CONTEXT,     CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID};
  unsigned type = 9;
  int ordinal = 9;
  CUcontext context = nullptr;
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  unsigned shareable = 9;
  unsigned long long id = 0;
  void* values[]{&type, &ordinal, &context, &start, &bytes, &shareable, &id};
  ASSERT_EQ(driver()->PointerGetAttributes(7, wanted, values, pointer + 5000), CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(context, gpu.context());
  EXPECT_EQ(start, pointer);
  EXPECT_EQ(bytes, 10000u);
  EXPECT_EQ(shareable, 1u);
  EXPECT_NE(id, 0u);
  const unsigned long long first = id;
  gpu.allocate(16);
  // Host memory is no error, and neither is what was freed.
  ASSERT_EQ(driver()->PointerGetAttributes(7, wanted, values, address(&type)), CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(ordinal, CU_DEVICE_INVALID);
  gpu.free(pointer);
  ASSERT_EQ(driver()->PointerGetAttributes(7, wanted, values, pointer), CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  ASSERT_EQ(driver()->PointerGetAttributes(7, wanted, values, gpu.allocate(16)), CUDA_SUCCESS);
  EXPECT_NE(id, first);
}

TEST(FakeMemory, RefusesWhatDoesNotFitAndCountsTheRest) {
  Gpu gpu;
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  ASSERT_EQ(driver()->MemGetInfo(&before, &total), CUDA_SUCCESS);
  gpu.allocate(std::size_t{1} << 20);
  ASSERT_EQ(driver()->MemGetInfo(&after, &total), CUDA_SUCCESS);
  EXPECT_EQ(before - after, std::size_t{1} << 20);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(driver()->MemAlloc(&pointer, total), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(FakeMemory, RefusesItsOwnIpcHandleAndOneOfMappedMemory) {
  Gpu gpu;
  CUipcMemHandle handle{};
  const CUdeviceptr pointer = gpu.allocate(4096);
  ASSERT_EQ(driver()->IpcGetMemHandle(&handle, pointer + 8), CUDA_SUCCESS);
  CUdeviceptr opened = 0;
  EXPECT_EQ(driver()->IpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
  const CUmemAllocationProp wanted = exportable_memory(0);
  CUmemGenericAllocationHandle memory_handle = 0;
  ASSERT_EQ(driver()->MemCreate(&memory_handle, kGranularity, &wanted, 0), CUDA_SUCCESS);
  const VirtualMemory memory = map_memory(memory_handle, kGranularity);
  EXPECT_EQ(driver()->IpcGetMemHandle(&handle, memory.pointer), CUDA_ERROR_INVALID_VALUE);
  unmap_memory(memory);
}

TEST(FakeMemory, OfTheHostIsForKernelsOnlyOncePageLocked) {
  Gpu gpu;
  CUstream stream = gpu.stream();
  std::vector<std::uint32_t> words(16, 1);
  ASSERT_EQ(driver()->MemHostRegister(words.data(), 64, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver()->MemHostRegister(words.data() + 1, 4, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  ASSERT_EQ(launch(gpu.function("increment"), stream, Increment{words.data(), 16, 1}),
            CUDA_SUCCESS);
  ASSERT_EQ(driver()->StreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words, std::vector<std::uint32_t>(16, 2));
  ASSERT_EQ(driver()->MemHostUnregister(words.data()), CUDA_SUCCESS);
  ASSERT_EQ(launch(gpu.function("increment"), stream, Increment{words.data(), 16, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace unisono::test
