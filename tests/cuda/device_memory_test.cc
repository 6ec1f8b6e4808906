// DeviceMemory within one process: what pointers are, own memory, tickets, ranks that are threads.
#include "cuda/memory/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/memory_fixture.h"
#include "tests/support/log_guard.h"

namespace unisono::test {
namespace {

using cuda::BufferTicket;
using cuda::DeviceMemory;
using ::testing::HasSubstr;
using Kind = BufferTicket::Kind;

/// Nothing may be left, and no line logged.
class DeviceMemoryTest : public ::testing::Test {
 protected:
  ~DeviceMemoryTest() override { expect_clean_driver(); }
  LogGuard log_;
};

TEST_F(DeviceMemoryTest, NamesTheDeviceItOpened) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto memory = open_device(1);
  EXPECT_EQ(memory->ordinal(), 1);
  EXPECT_NE(memory->context(), nullptr);
  EXPECT_THAT(memory->name(), HasSubstr("device 1 ("));
  EXPECT_NE(memory->uuid(), open_device(0)->uuid());
}

TEST_F(DeviceMemoryTest, SaysHowManyDevicesThereAre) {
  const int count = device_count();
  for (const int ordinal : {-1, count, 1000}) {
    const auto memory = DeviceMemory::open(driver(), ordinal);
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(memory.error().message(), HasSubstr("device " + std::to_string(ordinal)));
    EXPECT_THAT(memory.error().message(), HasSubstr("sees " + std::to_string(count)));
  }
}

TEST_F(DeviceMemoryTest, GivesBackItsContextWhenOpeningFails) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  fake()->fail("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const auto memory = DeviceMemory::open(driver(), 0);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code(), ErrorCode::kOutOfResources);
  EXPECT_EQ(fake()->counts().contexts, 0u);
}

TEST_F(DeviceMemoryTest, TellsHostFromDeviceMemory) {
  const auto memory = open_device();
  std::vector<char> host(100);
  EXPECT_FALSE(memory->facts(host.data(), host.size())->device);
  EXPECT_FALSE(memory->facts(nullptr, 0)->device);
  void* const device = cuda_malloc(*memory, 1000);
  const auto facts = memory->facts(at(device, 100), 900);
  ASSERT_TRUE(facts) << facts.error().message();
  EXPECT_TRUE(facts->device);
  EXPECT_EQ(facts->ordinal, 0);
  EXPECT_EQ(facts->base, reinterpret_cast<std::uint64_t>(device));
  EXPECT_GE(facts->bytes, 1000u);
  EXPECT_EQ(facts->context, memory->context());
  EXPECT_TRUE(cuda::look_at(*driver(), at(device, 999)).device);
  EXPECT_FALSE(cuda::look_at(*driver(), host.data()).device);
  EXPECT_FALSE(cuda::look_at(*driver(), nullptr).device);
  cuda_free(*memory, device);
}

TEST_F(DeviceMemoryTest, TakesRegisteredHostMemoryForHostMemory) {
  const auto memory = open_device();
  const cuda::CurrentContext current(*driver(), memory->context());
  void* host = nullptr;
  ASSERT_EQ(driver()->MemHostAlloc(&host, kMiB, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  const auto facts = memory->facts(host, kMiB);
  ASSERT_TRUE(facts) << facts.error().message();
  EXPECT_FALSE(facts->device);
  EXPECT_EQ(memory->ticket_of(host, kMiB)->kind, Kind::kHost);
  ASSERT_EQ(driver()->MemFreeHost(host), CUDA_SUCCESS);
}

TEST_F(DeviceMemoryTest, RefusesABufferThatEndsBefore) {
  const auto memory = open_device();
  void* const device = cuda_malloc(*memory, 4 * kMiB);
  EXPECT_TRUE(memory->facts(device, 4 * kMiB));
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, 4 * kMiB - 1}) {
    const auto facts = memory->facts(at(device, offset), 4 * kMiB - offset + 1);
    ASSERT_FALSE(facts);
    EXPECT_EQ(facts.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(facts.error().message(), HasSubstr("allocation of 4194304 bytes"));
    EXPECT_THAT(facts.error().message(), HasSubstr("device 0"));
  }
  EXPECT_FALSE(memory->facts(at(device, 8), SIZE_MAX));
  cuda_free(*memory, device);
}

TEST_F(DeviceMemoryTest, RefusesFreedMemory) {
  const auto memory = open_device();
  void* const freed = cuda_malloc(*memory, kMiB);
  EXPECT_TRUE(memory->ticket_of(freed, kMiB));
  cuda_free(*memory, freed);
  for (const Status& status :
       {memory->facts(freed, 16).status(), memory->ticket_of(freed, 16).status()}) {
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("16 bytes at 0x"));
    EXPECT_THAT(status.message(), HasSubstr("freed"));
    EXPECT_THAT(status.message(), HasSubstr("device 0"));
  }
}

TEST_F(DeviceMemoryTest, RefusesUnmappedMemory) {
  const auto memory = open_device();
  CUdeviceptr reserved = 0;
  ASSERT_EQ(driver()->MemAddressReserve(&reserved, 2 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(memory->facts(reinterpret_cast<void*>(reserved), 1).status().code(),
            ErrorCode::kInvalidArgument);
  ASSERT_EQ(driver()->MemAddressFree(reserved, 2 * kMiB), CUDA_SUCCESS);
}

TEST_F(DeviceMemoryTest, AllocatesWindows) {
  const auto memory = open_device();
  const auto pointer = memory->allocate(5);
  ASSERT_TRUE(pointer) << pointer.error().message();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*pointer) % 512, 0u);
  fill(*memory, *pointer, 5, 42);
  EXPECT_EQ(common_byte(*memory, *pointer, 5), 42);
  const auto ticket = memory->ticket_of(*pointer, 5);
  ASSERT_TRUE(ticket) << ticket.error().message();
  EXPECT_EQ(ticket->kind, Kind::kWindow);
  EXPECT_EQ(ticket->allocation_bytes % (2 * kMiB), 0u);
  EXPECT_TRUE(memory->release(*pointer));
}

TEST_F(DeviceMemoryTest, AllocatesPlainMemoryWhereAWindowIsRefused) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto memory = open_device();
  // With and without the flag for network devices.
  fake()->fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
  fake()->fail("cuMemCreate", 2, CUDA_ERROR_NOT_SUPPORTED);
  const auto pointer = memory->allocate(kMiB);
  ASSERT_TRUE(pointer) << pointer.error().message();
  EXPECT_EQ(memory->ticket_of(*pointer, kMiB)->kind, Kind::kLegacyIpc);
  EXPECT_EQ(fake()->counts().allocations, 1u);
  EXPECT_EQ(fake()->counts().virtual_parts, 0u);
  EXPECT_TRUE(memory->release(*pointer));
}

TEST_F(DeviceMemoryTest, SaysThatMemoryIsOutWithoutLosingAny) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto memory = open_device();
  for (const char* function : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap"}) {
    fake()->fail(function, 1, CUDA_ERROR_OUT_OF_MEMORY);
    const auto pointer = memory->allocate(kMiB);
    ASSERT_FALSE(pointer) << function;
    EXPECT_EQ(pointer.error().code(), ErrorCode::kOutOfResources) << function;
    EXPECT_THAT(pointer.error().message(), HasSubstr("device 0"));
    EXPECT_EQ(fake()->counts().virtual_parts, 0u) << function;
  }
  for (const std::size_t bytes : {std::size_t{1} << 40, SIZE_MAX, SIZE_MAX - kMiB}) {
    EXPECT_EQ(memory->allocate(bytes).status().code(), ErrorCode::kOutOfResources);
  }
  EXPECT_EQ(memory->allocate(0).status().code(), ErrorCode::kInvalidArgument);
}

TEST_F(DeviceMemoryTest, ReleasesOnlyWhatItGave) {
  const auto memory = open_device();
  void* const pointer = *memory->allocate(kMiB);
  void* const foreign = cuda_malloc(*memory, kMiB);
  for (void* const wrong : {foreign, static_cast<void*>(at(pointer, 512)), (void*)nullptr}) {
    EXPECT_EQ(memory->release(wrong).code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(memory->release(pointer));
  const Status twice = memory->release(pointer);
  EXPECT_EQ(twice.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(twice.message(), HasSubstr("released before"));
  cuda_free(*memory, foreign);
}

TEST_F(DeviceMemoryTest, FreesAtItsEndWhatWasNotReleased) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto memory = open_device();
  void* const window = *memory->allocate(kMiB);
  ASSERT_TRUE(memory->ticket_of(window, kMiB));
  fake()->fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
  fake()->fail("cuMemCreate", 2, CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_TRUE(memory->allocate(kMiB));
}

TEST_F(DeviceMemoryTest, LogsOnceWhatCannotBePutAway) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  log_.expect("closing device 0");
  auto memory = open_device();
  ASSERT_TRUE(memory->allocate(kMiB));
  ASSERT_TRUE(memory->allocate(kMiB));
  // Reported by the fake only: the call had its effect in no case.
  fake()->fail("cuDevicePrimaryCtxRelease", 1, CUDA_ERROR_UNKNOWN);
  memory.reset();
  EXPECT_EQ(log_.lines().size(), 1u);
  CUdevice device = 0;
  ASSERT_EQ(driver()->DeviceGet(&device, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver()->DevicePrimaryCtxRelease(device), CUDA_SUCCESS);
}

TEST_F(DeviceMemoryTest, LeavesEverythingToTheParentOfAForkedProcess) {
  auto memory = open_device();
  void* const window = *memory->allocate(kMiB);
  ASSERT_TRUE(memory->ticket_of(window, kMiB));
  const pid_t child = ::fork();
  if (child == 0) {
    memory.reset();
    ::_exit(log_.lines().empty() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fill(*memory, window, kMiB, 3);
  EXPECT_EQ(common_byte(*memory, window, kMiB), 3);
}

TEST_F(DeviceMemoryTest, GivesTicketsOfNothingAndOfHostMemory) {
  const auto memory = open_device();
  int host = 0;
  EXPECT_EQ(memory->ticket_of(nullptr, 100)->kind, Kind::kNone);
  EXPECT_EQ(memory->ticket_of(&host, 0)->kind, Kind::kNone);
  const auto ticket = memory->ticket_of(&host, sizeof host);
  EXPECT_EQ(ticket->kind, Kind::kHost);
  EXPECT_EQ(ticket->process, ::getpid());
  EXPECT_EQ(ticket->address, reinterpret_cast<std::uint64_t>(&host));
}

TEST_F(DeviceMemoryTest, RefusesATicketForAnotherDevicesMemory) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto first = open_device(0);
  const auto second = open_device(1);
  void* const pointer = cuda_malloc(*second, kMiB);
  const auto ticket = first->ticket_of(pointer, kMiB);
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(ticket.error().message(), HasSubstr("on device 1"));
  EXPECT_THAT(ticket.error().message(), HasSubstr("device 0 ("));
  cuda_free(*second, pointer);
}

TEST_F(DeviceMemoryTest, TicketsNameTheAllocationAndThePlaceInIt) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto memory = open_device();
  void* const plain = cuda_malloc(*memory, 3 * kMiB);
  const auto whole = memory->ticket_of(plain, 3 * kMiB);
  const auto part = memory->ticket_of(at(plain, kMiB), kMiB);
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(part->kind, Kind::kLegacyIpc);
  EXPECT_EQ(part->base, reinterpret_cast<std::uint64_t>(plain));
  EXPECT_EQ(part->address, part->base + kMiB);
  EXPECT_EQ(part->ipc_handle, whole->ipc_handle);
  EXPECT_EQ(fake()->calls("cuIpcGetMemHandle") > 0, true);
  cuda_free(*memory, plain);
}

TEST_F(DeviceMemoryTest, AsksForAHandleOncePerAllocation) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto memory = open_device();
  void* const plain = cuda_malloc(*memory, 3 * kMiB);
  void* const window = *memory->allocate(3 * kMiB);
  ASSERT_TRUE(memory->ticket_of(plain, kMiB));
  ASSERT_TRUE(memory->ticket_of(window, kMiB));
  const std::uint64_t asked = fake()->calls("cuPointerGetAttributes");
  const std::uint64_t calls = memory_calls();
  for (std::size_t i = 1; i <= 10; ++i) {
    ASSERT_TRUE(memory->ticket_of(at(plain, i * 4096), kMiB));
    ASSERT_TRUE(memory->ticket_of(at(window, i * 4096), kMiB));
  }
  EXPECT_EQ(fake()->calls("cuPointerGetAttributes"), asked + 10);
  EXPECT_EQ(memory_calls(), calls + 10);
  EXPECT_TRUE(memory->release(window));
  cuda_free(*memory, plain);
}

TEST_F(DeviceMemoryTest, RemembersABoundedNumberOfAllocations) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto memory = open_device();
  void* const first = cuda_malloc(*memory, 512);
  ASSERT_TRUE(memory->ticket_of(first, 512));
  const std::uint64_t handles = fake()->calls("cuIpcGetMemHandle");
  std::vector<void*> others;
  for (int i = 0; i < 1024; ++i) {
    others.push_back(cuda_malloc(*memory, 512));
    ASSERT_TRUE(memory->ticket_of(others.back(), 512));
  }
  ASSERT_TRUE(memory->ticket_of(first, 512));
  EXPECT_EQ(fake()->calls("cuIpcGetMemHandle"), handles + 1025);
  for (void* const other : others) cuda_free(*memory, other);
  cuda_free(*memory, first);
}

TEST_F(DeviceMemoryTest, RefusesATicketBeyondAWindow) {
  const auto memory = open_device();
  void* const window = *memory->allocate(2 * kMiB);
  EXPECT_TRUE(memory->ticket_of(window, 2 * kMiB));
  const auto ticket = memory->ticket_of(at(window, 16), 2 * kMiB);
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(memory->release(window));
}

TEST_F(DeviceMemoryTest, FallsBackWhereAnIpcHandleIsRefused) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto memory = open_device();
  void* const plain = cuda_malloc(*memory, kMiB);
  fake()->fail("cuIpcGetMemHandle", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory->ticket_of(plain, kMiB)->kind, Kind::kUnshareable);
  cuda_free(*memory, plain);
}

TEST_F(DeviceMemoryTest, ABufferOverSeveralPiecesHasNoHandle) {
  const auto memory = open_device();
  if (!has_numbers_of_windows(*memory)) GTEST_SKIP() << "needs numbers of memory with handles";
  const MappedRange range = map_range(*memory, 2 * kMiB, 2, true);
  EXPECT_EQ(memory->ticket_of(range.pointer, 2 * kMiB)->kind, Kind::kWindow);
  const auto second = memory->ticket_of(at(range.pointer, 3 * kMiB), kMiB);
  EXPECT_EQ(second->kind, Kind::kWindow);
  EXPECT_EQ(second->base, reinterpret_cast<std::uint64_t>(at(range.pointer, 2 * kMiB)));
  EXPECT_EQ(memory->ticket_of(at(range.pointer, kMiB), 2 * kMiB)->kind, Kind::kUnshareable);
  unmap_range(range);
}

TEST_F(DeviceMemoryTest, AnOwnTicketMapsToThePointerItself) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto mine = open_device();
  const auto peers = open_device();
  void* const window = *peers->allocate(kMiB);
  void* const plain = cuda_malloc(*peers, kMiB);
  const MappedRange range = map_range(*peers, 2 * kMiB, 1, false);
  const std::uint64_t opened = fake()->calls("cuIpcOpenMemHandle");
  for (void* const buffer : {window, plain, range.pointer}) {
    const auto ticket = peers->ticket_of(at(buffer, 64), 100);
    const auto mapped = mine->open(*ticket, this_process(1), 100);
    ASSERT_TRUE(mapped) << mapped.error().message();
    EXPECT_EQ(*mapped, at(buffer, 64));
  }
  EXPECT_EQ(fake()->calls("cuIpcOpenMemHandle"), opened);
  unmap_range(range);
  EXPECT_TRUE(peers->release(window));
  cuda_free(*peers, plain);
}

TEST_F(DeviceMemoryTest, ReachesTheOtherDeviceOfThisProcess) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto first = open_device(0);
  const auto also_first = open_device(0);
  const auto second = open_device(1);
  void* const window = *second->allocate(kMiB);
  void* const plain = cuda_malloc(*second, kMiB);
  for (void* const buffer : {window, plain}) {
    fill(*second, buffer, kMiB, 11);
    const auto ticket = second->ticket_of(buffer, kMiB);
    // The second rank of the device meets access that is enabled already.
    for (const auto& memory : {first.get(), also_first.get()}) {
      const auto mapped = memory->open(*ticket, this_process(1), kMiB);
      ASSERT_TRUE(mapped) << mapped.error().message();
      EXPECT_EQ(*mapped, buffer);
      EXPECT_EQ(common_byte(*memory, *mapped, kMiB), 11);
      const std::uint64_t calls = memory_calls();
      EXPECT_TRUE(memory->open(*ticket, this_process(1), kMiB));
      EXPECT_EQ(memory_calls(), calls);
    }
  }
  EXPECT_TRUE(second->release(window));
  cuda_free(*second, plain);
}

/// Reads through `reader`, whose device is another one, what its owner has written there.
void expect_reached(DeviceMemory& reader, DeviceMemory& owner, void* buffer, std::size_t bytes) {
  fill(owner, buffer, bytes, 17);
  const auto ticket = owner.ticket_of(buffer, bytes);
  ASSERT_TRUE(ticket) << ticket.error().message();
  const auto mapped = reader.open(*ticket, this_process(1), bytes);
  ASSERT_TRUE(mapped) << mapped.error().message();
  EXPECT_EQ(*mapped, buffer);
  EXPECT_EQ(common_byte(reader, *mapped, bytes), 17) << "the other device has no access";
}

// As an application has it from cudaMallocAsync.
TEST_F(DeviceMemoryTest, ReachesThePoolOfTheOtherDevice) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto first = open_device(0);
  const auto second = open_device(1);
  CUdeviceptr memory = 0;
  {
    const cuda::CurrentContext current(*driver(), second->context());
    const auto allocate =
        reinterpret_cast<decltype(&::cuMemAllocAsync)>(driver_function("cuMemAllocAsync"));
    ASSERT_EQ(allocate(&memory, kMiB, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(driver()->StreamSynchronize(nullptr), CUDA_SUCCESS);
  }
  auto* const buffer = reinterpret_cast<void*>(memory);
  expect_reached(*first, *second, buffer, kMiB);
  cuda_free(*second, buffer);
}

TEST_F(DeviceMemoryTest, ReachesMemoryThatWasMappedAnewOnTheOtherDevice) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto first = open_device(0);
  const auto second = open_device(1);
  for (const bool exportable : {false, true}) {
    SCOPED_TRACE(exportable ? "exportable" : "not exportable");
    MappedRange range = map_range(*second, 2 * kMiB, 1, exportable);
    expect_reached(*first, *second, range.pointer, 2 * kMiB);
    remap_piece(*second, 0, &range);
    expect_reached(*first, *second, range.pointer, 2 * kMiB);
    unmap_range(range);
  }
}

// As segments of PyTorch's that are expanded: what is longer begins with the same piece.
TEST_F(DeviceMemoryTest, ReachesAllPiecesOfABufferOnTheOtherDevice) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto first = open_device(0);
  const auto second = open_device(1);
  for (const bool exportable : {false, true}) {
    SCOPED_TRACE(exportable ? "exportable" : "not exportable");
    MappedRange range = map_range(*second, 2 * kMiB, 3, exportable);
    expect_reached(*first, *second, range.pointer, 2 * kMiB);
    expect_reached(*first, *second, range.pointer, 4 * kMiB);
    expect_reached(*first, *second, range.pointer, 6 * kMiB);
    remap_piece(*second, 1, &range);
    expect_reached(*first, *second, range.pointer, 6 * kMiB);
    remap_piece(*second, 2, &range);
    expect_reached(*first, *second, at(range.pointer, 3 * kMiB), 3 * kMiB);
    unmap_range(range);
  }
}

TEST_F(DeviceMemoryTest, SaysThatAnotherDeviceCannotBeReached) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto first = open_device(0);
  const auto second = open_device(1);
  void* const window = *second->allocate(kMiB);
  void* const plain = cuda_malloc(*second, kMiB);
  // Both devices may have seen each other in another test: access stays with the context.
  fake()->fail("cuCtxEnablePeerAccess", 1, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  fake()->fail("cuMemSetAccess", 1, CUDA_ERROR_INVALID_DEVICE);
  const std::uint64_t contexts = fake()->counts().contexts;
  for (void* const buffer : {window, plain}) {
    const auto ticket = second->ticket_of(buffer, kMiB);
    const auto refused = first->open(*ticket, this_process(1), kMiB);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message(), HasSubstr("rank 1"));
    EXPECT_THAT(refused.error().message(), HasSubstr("device 0"));
    if (buffer == plain) {
      EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
      EXPECT_THAT(refused.error().message(), HasSubstr("device 1"));
    }
    EXPECT_EQ(fake()->counts().contexts, contexts);
    EXPECT_TRUE(first->open(*ticket, this_process(1), kMiB));
  }
  EXPECT_TRUE(second->release(window));
  cuda_free(*second, plain);
}

TEST_F(DeviceMemoryTest, SetsMemoryUpWhileAStreamIsCaptured) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto memory = open_device();
  void* const before = cuda_malloc(*memory, kMiB);
  const auto begin =
      reinterpret_cast<decltype(&::cuStreamBeginCapture)>(driver_function("cuStreamBeginCapture"));
  const auto end =
      reinterpret_cast<decltype(&::cuStreamEndCapture)>(driver_function("cuStreamEndCapture"));
  const auto destroy =
      reinterpret_cast<decltype(&::cuGraphDestroy)>(driver_function("cuGraphDestroy"));
  const cuda::CurrentContext current(*driver(), memory->context());
  CUstream stream = nullptr;
  ASSERT_EQ(driver()->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  fake()->fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
  fake()->fail("cuMemCreate", 2, CUDA_ERROR_NOT_SUPPORTED);
  const auto plain = memory->allocate(kMiB);
  const auto window = memory->allocate(kMiB);
  EXPECT_TRUE(plain) << plain.status().message();
  EXPECT_TRUE(memory->ticket_of(before, kMiB));
  EXPECT_TRUE(memory->ticket_of(*window, kMiB));
  CUgraph graph = nullptr;
  EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(destroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(driver()->StreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_TRUE(memory->release(*plain));
  EXPECT_TRUE(memory->release(*window));
  cuda_free(*memory, before);
}

bool has_dma_bufs(const DeviceMemory& memory) {
  int value = 0;
  return driver()->DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
                                      memory.device()) == CUDA_SUCCESS &&
         value != 0;
}

TEST_F(DeviceMemoryTest, MakesDmaBufsOfWholePages) {
  const auto memory = open_device();
  if (!has_dma_bufs(*memory)) GTEST_SKIP() << "needs a device with dma-bufs";
  if (!has_numbers_of_windows(*memory)) GTEST_SKIP() << "needs numbers of memory with handles";
  void* const window = *memory->allocate(kMiB);
  const auto direct = memory->direct(window, kMiB);
  ASSERT_TRUE(direct) << direct.error().message();
  std::uint64_t offset = 0;
  const auto descriptor = (*direct)->dma_buf((*direct)->bytes().subspan(4096 + 100, 5000), &offset);
  ASSERT_TRUE(descriptor) << descriptor.error().message();
  EXPECT_TRUE(*descriptor);
  EXPECT_EQ(offset, 100u);
  EXPECT_TRUE(memory->release(window));
}

TEST_F(DeviceMemoryTest, GivesNetworkDevicesOnlyBuffersOfItsOwn) {
  const auto memory = open_device();
  if (!has_dma_bufs(*memory)) GTEST_SKIP() << "needs a device with dma-bufs";
  void* const window = *memory->allocate(kMiB);
  int host = 0;
  EXPECT_EQ(memory->direct(&host, sizeof host).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(memory->direct(window, 3 * kMiB).status().code(), ErrorCode::kInvalidArgument);
  for (const auto& nothing : {memory->direct(window, 0), memory->direct(nullptr, 4)}) {
    EXPECT_EQ(nothing.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(nothing.status().message(), HasSubstr("there is no buffer"));
  }
  EXPECT_TRUE(memory->release(window));
}

}  // namespace
}  // namespace unisono::test
