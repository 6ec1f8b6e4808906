// DeviceMemory between processes: the owner of a buffer is another process, this one maps it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cuda/driver/driver_section.h"
#include "tests/cuda/memory_fixture.h"
#include "tests/cuda/memory_owner.h"
#include "tests/support/log_guard.h"

namespace unisono::test {
namespace {

using cuda::BufferTicket;
using ::testing::HasSubstr;
using Kind = BufferTicket::Kind;

constexpr cuda::Peer kOwner = other_process(3);

class DeviceMemoryProcesses : public ::testing::Test {
 protected:
  ~DeviceMemoryProcesses() override {
    memory_.reset();
    expect_clean_driver();
  }

  /// What both sides write is seen at the other.
  void expect_shared(MemoryOwner& owner, void* there, std::size_t bytes) {
    const auto ticket = owner.ticket_of(there, bytes);
    ASSERT_TRUE(ticket) << ticket.error().message();
    auto here = memory_->open(*ticket, kOwner, bytes);
    ASSERT_TRUE(here) << here.error().message();
    if (*here == nullptr) {
      memory_->side_work().finish();
      here = memory_->open(*ticket, kOwner, bytes);
    }
    ASSERT_TRUE(here && *here != nullptr) << here.status().message();
    ASSERT_TRUE(owner.fill(there, bytes, ++value_));
    EXPECT_EQ(common_byte(*memory_, *here, bytes), value_);
    fill(*memory_, *here, bytes, ++value_);
    EXPECT_EQ(owner.common_byte(there, bytes), value_);
  }

  LogGuard log_;
  std::unique_ptr<cuda::DeviceMemory> memory_ = open_device();
  std::uint8_t value_ = 0;
};

// A stream of this process stands still meanwhile.
class BusyDevice {
 public:
  explicit BusyDevice(const cuda::DeviceMemory& memory) : context_(memory.context()) {
    const cuda::DriverSection section(*driver(), context_);
    EXPECT_EQ(driver()->StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(driver()->EventCreate(&event_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    fake()->hold_stream(stream_);
    EXPECT_EQ(driver()->EventRecord(event_, stream_), CUDA_SUCCESS);
  }
  ~BusyDevice() {
    const cuda::DriverSection section(*driver(), context_);
    fake()->release_stream(stream_);
    EXPECT_EQ(driver()->StreamDestroy(stream_), CUDA_SUCCESS);
    EXPECT_EQ(driver()->EventDestroy(event_), CUDA_SUCCESS);
  }
  BusyDevice(const BusyDevice&) = delete;

 private:
  CUcontext context_;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
};

TEST_F(DeviceMemoryProcesses, ShareAWindow) {
  MemoryOwner owner;
  void* const window = *owner.allocate(3 * kMiB);
  expect_shared(owner, window, 3 * kMiB);
  expect_shared(owner, at(window, kMiB + 12), 1000);
  EXPECT_EQ(owner.ticket_of(window, kMiB)->kind, Kind::kWindow);
  // Its neighbours are untouched.
  ASSERT_TRUE(owner.fill(window, 3 * kMiB, 1));
  expect_shared(owner, at(window, kMiB), 64);
  EXPECT_EQ(owner.common_byte(window, kMiB), 1);
  EXPECT_EQ(owner.common_byte(at(window, kMiB + 64), kMiB), 1);
  memory_.reset();
  EXPECT_EQ(*owner.close(), 0u);
}

TEST_F(DeviceMemoryProcesses, ShareCudaMallocMemoryByBaseAndOffset) {
  MemoryOwner owner;
  void* const plain = *owner.cuda_malloc(3 * kMiB);
  ASSERT_TRUE(owner.fill(plain, 3 * kMiB, 99));
  EXPECT_EQ(owner.ticket_of(at(plain, kMiB), kMiB)->kind, Kind::kLegacyIpc);
  expect_shared(owner, at(plain, kMiB), kMiB);
  EXPECT_EQ(owner.common_byte(plain, kMiB), 99);
  EXPECT_EQ(owner.common_byte(at(plain, 2 * kMiB), kMiB), 99);
  memory_->forget(kOwner.world_rank);
  ASSERT_TRUE(owner.cuda_free(plain));
  EXPECT_EQ(*owner.close(), 0u);
}

TEST_F(DeviceMemoryProcesses, ShareForeignMemoryThatCanBeExported) {
  if (!has_numbers_of_windows(*memory_)) GTEST_SKIP() << "needs numbers of memory with handles";
  MemoryOwner owner;
  void* const range = *owner.map_range(2 * kMiB, 2, true);
  EXPECT_EQ(owner.ticket_of(range, kMiB)->kind, Kind::kWindow);
  expect_shared(owner, range, kMiB);
  expect_shared(owner, at(range, 2 * kMiB + 64), kMiB);
  memory_->forget(kOwner.world_rank);
  ASSERT_TRUE(owner.unmap_ranges());
  EXPECT_EQ(*owner.close(), 0u);
}

TEST_F(DeviceMemoryProcesses, CannotShareForeignMemoryWithoutExport) {
  MemoryOwner owner;
  void* const range = *owner.map_range(2 * kMiB, 1, false);
  const auto ticket = owner.ticket_of(range, kMiB);
  ASSERT_TRUE(ticket) << ticket.error().message();
  EXPECT_EQ(ticket->kind, Kind::kUnshareable);
  const auto mapped = memory_->open(*ticket, kOwner, kMiB);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(mapped.error().message(), HasSubstr("rank 3"));
  EXPECT_THAT(mapped.error().message(), HasSubstr("device 0"));
  ASSERT_TRUE(owner.unmap_ranges());
  EXPECT_EQ(*owner.close(), 0u);
}

TEST_F(DeviceMemoryProcesses, MapAnAllocationOnceAndRememberIt) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner;
  void* const window = *owner.allocate(kMiB);
  void* const plain = *owner.cuda_malloc(kMiB);
  for (void* const buffer : {window, plain}) {
    const auto whole = owner.ticket_of(buffer, kMiB);
    const auto part = owner.ticket_of(at(buffer, 4096), 4096);
    ASSERT_TRUE(whole && part);
    const auto here = memory_->open(*whole, kOwner, kMiB);
    ASSERT_TRUE(here) << here.error().message();
    const std::uint64_t calls = memory_calls();
    EXPECT_EQ(*memory_->open(*whole, kOwner, kMiB), *here);
    EXPECT_EQ(*memory_->open(*part, kOwner, 4096), at(*here, 4096));
    EXPECT_EQ(memory_calls(), calls);
  }
}

// As kernels in a graph use it: the peer is forgotten, and its memory released.
TEST_F(DeviceMemoryProcesses, KeepAMappingForAsLongAsItIsWanted) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  const auto unmapped = [] {
    return fake()->calls("cuMemUnmap") + fake()->calls("cuIpcCloseMemHandle");
  };
  MemoryOwner owner;
  for (void* const buffer : {*owner.allocate(kMiB), *owner.cuda_malloc(kMiB)}) {
    const auto ticket = owner.ticket_of(buffer, kMiB);
    ASSERT_TRUE(ticket);
    void* const here = *memory_->open(*ticket, kOwner, kMiB);
    auto kept = memory_->keep(*ticket);
    ASSERT_TRUE(kept) << kept.error().message();
    ASSERT_TRUE(owner.fill(buffer, kMiB, 6));
    const std::uint64_t before = unmapped();
    memory_->forget(kOwner.world_rank);
    EXPECT_EQ(common_byte(*memory_, here, kMiB), 6);
    EXPECT_EQ(unmapped(), before);
    kept->reset();
    memory_->side_work().finish();
    EXPECT_EQ(unmapped(), before + 1);
  }
  void* const own = *memory_->allocate(kMiB);
  const auto nothing = memory_->keep(*memory_->ticket_of(own, kMiB));
  ASSERT_TRUE(nothing);
  EXPECT_EQ(*nothing, nullptr);
  EXPECT_TRUE(memory_->release(own));
}

TEST_F(DeviceMemoryProcesses, OpenAHandleOnceForAllRanksOfAProcess) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner;
  void* const plain = *owner.cuda_malloc(kMiB);
  const auto ticket = owner.ticket_of(plain, kMiB);
  ASSERT_TRUE(ticket);
  const std::uint64_t opened = fake()->calls("cuIpcOpenMemHandle");
  const std::uint64_t closed = fake()->calls("cuIpcCloseMemHandle");
  auto other = open_device();
  void* const here = *memory_->open(*ticket, kOwner, kMiB);
  EXPECT_EQ(*other->open(*ticket, kOwner, kMiB), here);
  // Two ranks may live in that process.
  EXPECT_EQ(*other->open(*ticket, other_process(4), kMiB), here);
  EXPECT_EQ(fake()->calls("cuIpcOpenMemHandle"), opened + 1);
  memory_->forget(kOwner.world_rank);
  other->forget(kOwner.world_rank);
  EXPECT_EQ(fake()->calls("cuIpcCloseMemHandle"), closed);
  ASSERT_TRUE(owner.fill(plain, kMiB, 5));
  EXPECT_EQ(common_byte(*other, here, kMiB), 5);
  other.reset();
  EXPECT_EQ(fake()->calls("cuIpcCloseMemHandle"), closed + 1);
  EXPECT_EQ(fake()->counts().imports, 0u);
}

TEST_F(DeviceMemoryProcesses, NoticeAnAddressThatWasFreedAndTakenAgain) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner({"FAKE_CUDA_ADDRESSES=reuse"});
  void* const first = *owner.cuda_malloc(kMiB);
  expect_shared(owner, first, kMiB);
  const auto before = owner.ticket_of(first, kMiB);
  memory_->forget(kOwner.world_rank);
  ASSERT_TRUE(memory_->open(*before, kOwner, kMiB));
  ASSERT_TRUE(owner.cuda_free(first));
  void* const second = *owner.cuda_malloc(kMiB);
  ASSERT_EQ(second, first) << "the driver does not reuse addresses";
  expect_shared(owner, second, kMiB);
  EXPECT_NE(owner.ticket_of(second, kMiB)->allocation_id, before->allocation_id);
  memory_->side_work().finish();
  EXPECT_EQ(fake()->counts().imports, 1u);
}

// The driver closes a handle when no stream of the process runs any more.
TEST_F(DeviceMemoryProcesses, OpenNothingWhereAnotherHandleIsBeingClosed) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner({"FAKE_CUDA_ADDRESSES=reuse"});
  void* const first = *owner.cuda_malloc(kMiB);
  expect_shared(owner, first, kMiB);
  ASSERT_TRUE(owner.cuda_free(first));
  void* const second = *owner.cuda_malloc(kMiB);
  ASSERT_EQ(second, first) << "the driver does not reuse addresses";
  const auto ticket = owner.ticket_of(second, kMiB);
  const auto elsewhere = owner.ticket_of(*owner.cuda_malloc(kMiB), kMiB);
  {
    const BusyDevice busy(*memory_);
    for (int look = 0; look < 10; ++look) {
      const auto here = memory_->open(*ticket, kOwner, kMiB);
      ASSERT_TRUE(here) << here.error().message();
      EXPECT_EQ(*here, nullptr);
      EXPECT_NE(*memory_->open(*elsewhere, kOwner, kMiB), nullptr);
    }
  }
  expect_shared(owner, second, kMiB);
  EXPECT_EQ(fake()->counts().imports, 2u);
}

TEST_F(DeviceMemoryProcesses, RefuseForeignMemoryThatWasMappedAnew) {
  if (!has_numbers_of_windows(*memory_)) GTEST_SKIP() << "needs numbers of memory with handles";
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner({"FAKE_CUDA_ADDRESSES=reuse"});
  void* const first = *owner.map_range(2 * kMiB, 1, true);
  const auto old = owner.ticket_of(first, kMiB);
  ASSERT_TRUE(old);
  ASSERT_TRUE(owner.unmap_ranges());
  void* const second = *owner.map_range(2 * kMiB, 1, true);
  ASSERT_EQ(second, first) << "the driver does not reuse addresses";
  const auto mapped = memory_->open(*old, kOwner, kMiB);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(mapped.error().message(), HasSubstr("the memory was freed"));
  expect_shared(owner, second, kMiB);
  memory_->forget(kOwner.world_rank);
  ASSERT_TRUE(owner.unmap_ranges());
  EXPECT_EQ(*owner.close(), 0u);
}

TEST_F(DeviceMemoryProcesses, KeepAReleasedWindowUntilTheOwnerIsAskedAgain) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner;
  void* const first = *owner.allocate(kMiB);
  const auto ticket = owner.ticket_of(first, kMiB);
  void* const here = *memory_->open(*ticket, kOwner, kMiB);
  ASSERT_TRUE(owner.fill(first, kMiB, 17));
  ASSERT_TRUE(owner.release(first));
  EXPECT_EQ(common_byte(*memory_, here, kMiB), 17);
  const std::uint64_t parts = fake()->counts().virtual_parts;
  expect_shared(owner, *owner.allocate(4 * kMiB), 4 * kMiB);
  expect_shared(owner, *owner.allocate(8 * kMiB), 8 * kMiB);
  memory_->side_work().finish();
  EXPECT_EQ(fake()->counts().virtual_parts, 2 * parts) << "two windows live, the first is gone";
}

// A question is about many windows, and nothing is exported for it.
TEST_F(DeviceMemoryProcesses, AskTheOwnerAboutManyWindowsAtOnce) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  constexpr int kWindows = 30;
  MemoryOwner owner;
  std::vector<void*> windows;
  for (int i = 0; i < kWindows; ++i) {
    windows.push_back(*owner.allocate(kMiB));
    ASSERT_TRUE(memory_->open(*owner.ticket_of(windows.back(), kMiB), kOwner, kMiB));
  }
  EXPECT_EQ(*owner.calls("cuMemExportToShareableHandle"), std::uint64_t{kWindows});
  const std::uint64_t parts = fake()->counts().virtual_parts / kWindows;
  for (const std::size_t gone : {0, 24, 29}) ASSERT_TRUE(owner.release(windows[gone]));
  ASSERT_TRUE(memory_->open(*owner.ticket_of(*owner.allocate(kMiB), kMiB), kOwner, kMiB));
  memory_->side_work().finish();
  EXPECT_EQ(fake()->counts().virtual_parts, parts * (kWindows - 2));
}

TEST_F(DeviceMemoryProcesses, KeepAWindowThatItsOwnerCannotExportJustNow) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner;
  void* const first = *owner.allocate(kMiB);
  void* const here = *memory_->open(*owner.ticket_of(first, kMiB), kOwner, kMiB);
  ASSERT_TRUE(owner.fill(first, kMiB, 23));
  const BufferTicket second = *owner.ticket_of(*owner.allocate(kMiB), kMiB);
  ASSERT_TRUE(owner.fail("cuMemExportToShareableHandle", CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(memory_->open(second, kOwner, kMiB));
  EXPECT_TRUE(memory_->open(second, kOwner, kMiB));
  memory_->side_work().finish();
  EXPECT_EQ(common_byte(*memory_, here, kMiB), 23);
}

TEST_F(DeviceMemoryProcesses, RefuseAWindowThatWasReleasedBefore) {
  if (!has_numbers_of_windows(*memory_)) GTEST_SKIP() << "needs numbers of memory with handles";
  MemoryOwner owner;
  void* const window = *owner.allocate(kMiB);
  void* const range = *owner.map_range(2 * kMiB, 1, true);
  const auto released = owner.ticket_of(window, kMiB);
  const auto unmapped = owner.ticket_of(range, kMiB);
  ASSERT_TRUE(released && unmapped);
  ASSERT_TRUE(owner.release(window));
  ASSERT_TRUE(owner.unmap_ranges());
  for (const BufferTicket& ticket : {*released, *unmapped}) {
    const auto mapped = memory_->open(ticket, kOwner, kMiB);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(mapped.error().rank(), kOwner.rank);
    EXPECT_THAT(mapped.error().message(), HasSubstr("rank 3"));
    EXPECT_THAT(mapped.error().message(), HasSubstr("the owner refuses"));
  }
  EXPECT_EQ(*owner.close(), 0u);
}

TEST_F(DeviceMemoryProcesses, SurviveThePeersDeath) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner;
  void* const window = *owner.allocate(kMiB);
  void* const plain = *owner.cuda_malloc(kMiB);
  void* const late = *owner.allocate(kMiB);
  const auto late_ticket = owner.ticket_of(late, kMiB);
  expect_shared(owner, plain, kMiB);
  expect_shared(owner, window, kMiB);
  void* const here = *memory_->open(*owner.ticket_of(window, kMiB), kOwner, kMiB);
  owner.die();
  EXPECT_EQ(common_byte(*memory_, here, kMiB), value_);
  const auto mapped = memory_->open(*late_ticket, kOwner, kMiB);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code(), ErrorCode::kRankFailed);
  EXPECT_EQ(mapped.error().rank(), kOwner.rank);
  memory_->forget(kOwner.world_rank);
  memory_->side_work().finish();
  EXPECT_EQ(fake()->counts().imports, 0u);
  EXPECT_EQ(fake()->counts().virtual_parts, 0u);
}

TEST_F(DeviceMemoryProcesses, DropWhatTheFormerProcessOfARankOwned) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  {
    MemoryOwner former;
    ASSERT_TRUE(memory_->open(*former.ticket_of(*former.cuda_malloc(kMiB), kMiB), kOwner, kMiB));
    former.die();
  }
  MemoryOwner owner;
  expect_shared(owner, *owner.cuda_malloc(kMiB), kMiB);
  memory_->side_work().finish();
  EXPECT_EQ(fake()->counts().imports, 1u);
}

TEST_F(DeviceMemoryProcesses, SayWhoseHandleIsRefused) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner;
  const auto ticket = owner.ticket_of(*owner.cuda_malloc(kMiB), kMiB);
  ASSERT_TRUE(ticket);
  fake()->fail("cuIpcOpenMemHandle", 1, CUDA_ERROR_NOT_PERMITTED);
  const auto refused = memory_->open(*ticket, kOwner, kMiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kSystem);
  EXPECT_EQ(refused.error().rank(), kOwner.rank);
  EXPECT_THAT(refused.error().message(), HasSubstr("rank 3"));
  EXPECT_THAT(refused.error().message(), HasSubstr("device 0"));
  EXPECT_THAT(refused.error().message(), HasSubstr("CUDA_ERROR_NOT_PERMITTED"));
  EXPECT_TRUE(memory_->open(*ticket, kOwner, kMiB));
}

// A driver may not tell how long imported memory is.
TEST_F(DeviceMemoryProcesses, BelieveALengthThatTheDriverDoesNotTell) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner;
  const auto ticket = owner.ticket_of(*owner.cuda_malloc(kMiB), kMiB);
  ASSERT_TRUE(ticket);
  fake()->fail("cuMemGetAddressRange", 1, CUDA_ERROR_NOT_FOUND);
  const auto mapped = memory_->open(*ticket, kOwner, kMiB);
  EXPECT_TRUE(mapped) << mapped.error().message();
}

TEST_F(DeviceMemoryProcesses, LoseNothingWhenAnImportFails) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner;
  const auto ticket = owner.ticket_of(*owner.allocate(kMiB), kMiB);
  ASSERT_TRUE(ticket);
  for (const char* function :
       {"cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    fake()->fail(function, 1, CUDA_ERROR_OUT_OF_MEMORY);
    const auto mapped = memory_->open(*ticket, kOwner, kMiB);
    ASSERT_FALSE(mapped) << function;
    EXPECT_EQ(mapped.error().code(), ErrorCode::kOutOfResources) << function;
    EXPECT_EQ(mapped.error().rank(), -1) << function;
    EXPECT_EQ(fake()->counts().virtual_parts, 0u) << function;
  }
  EXPECT_TRUE(memory_->open(*ticket, kOwner, kMiB));
}

TEST_F(DeviceMemoryProcesses, KeepNoDescriptorOpen) {
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  MemoryOwner owner;
  void* const theirs = *owner.allocate(kMiB);
  void* const mine = *memory_->allocate(kMiB);
  const auto ticket = owner.ticket_of(theirs, kMiB);
  const auto my_ticket = memory_->ticket_of(mine, kMiB);
  const auto map_both = [&] {
    ASSERT_TRUE(memory_->open(*ticket, kOwner, kMiB));
    ASSERT_TRUE(owner.open(*my_ticket, 0, kMiB));
    memory_->forget(kOwner.world_rank);
    memory_->side_work().finish();
    ASSERT_TRUE(owner.forget(0));
  };
  // A driver may open some of its own for good with the first import.
  map_both();
  const auto before = open_descriptors();
  for (int i = 0; i < 3; ++i) map_both();
  // The server's thread closes what it has sent when the visitor may have gone on already: of the
  // first round it may have been counted.
  const TimePoint limit = Clock::now() + std::chrono::seconds(10);
  while (open_descriptors() > before && Clock::now() < limit) std::this_thread::yield();
  EXPECT_LE(open_descriptors(), before);
  EXPECT_EQ(*owner.close(), 0u);
  EXPECT_TRUE(memory_->release(mine));
}

TEST_F(DeviceMemoryProcesses, LetRanksOfOneProcessMapAtOnce) {
  MemoryOwner owner;
  std::vector<BufferTicket> tickets;
  for (int i = 0; i < 4; ++i) {
    tickets.push_back(*owner.ticket_of(*owner.allocate(kMiB), kMiB));
    tickets.push_back(*owner.ticket_of(*owner.cuda_malloc(kMiB), kMiB));
  }
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&] {
      const auto memory = open_device();
      for (int round = 0; round < 20; ++round) {
        for (const BufferTicket& ticket : tickets) {
          const auto mapped = memory->open(ticket, kOwner, kMiB);
          EXPECT_TRUE(mapped) << mapped.status().message();
        }
        memory->forget(kOwner.world_rank);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(DeviceMemoryProcesses, MapEachOthersMemoryAtOnce) {
  // Nobody may hold while waiting for a peer what that peer needs to answer.
  MemoryOwner owner;
  void* const here = *memory_->allocate(kMiB);
  void* const there = *owner.allocate(kMiB);
  const auto from_here = memory_->ticket_of(here, kMiB);
  const auto from_there = owner.ticket_of(there, kMiB);
  std::thread other([&] { EXPECT_TRUE(owner.open(*from_here, 0, kMiB)); });
  EXPECT_TRUE(memory_->open(*from_there, kOwner, kMiB));
  other.join();
  EXPECT_EQ(*owner.close(), 0u);
  EXPECT_TRUE(memory_->release(here));
}

// A driver of other abilities at the owner's end: what it can still offer.
struct Ability {
  const char* name;
  std::string environment;
  Kind window;  ///< of what allocate() gives
  Kind plain;   ///< of what cudaMalloc gives
};

class LesserDriver : public DeviceMemoryProcesses, public ::testing::WithParamInterface<Ability> {};

TEST_P(LesserDriver, OffersWhatItCan) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner({GetParam().environment});
  const auto window = owner.allocate(kMiB);
  ASSERT_TRUE(window) << window.error().message();
  void* const plain = *owner.cuda_malloc(kMiB);
  EXPECT_EQ(owner.ticket_of(*window, kMiB)->kind, GetParam().window);
  EXPECT_EQ(owner.ticket_of(plain, kMiB)->kind, GetParam().plain);
  for (void* const buffer : {*window, plain}) {
    if (owner.ticket_of(buffer, kMiB)->kind != Kind::kUnshareable)
      expect_shared(owner, buffer, kMiB);
  }
  memory_->forget(kOwner.world_rank);
  ASSERT_TRUE(owner.release(*window));
  ASSERT_TRUE(owner.cuda_free(plain));
  EXPECT_EQ(*owner.close(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    DeviceMemoryProcesses, LesserDriver,
    ::testing::Values(
        Ability{"WithoutCreate", "FAKE_CUDA_MISSING=cuMemCreate", Kind::kLegacyIpc,
                Kind::kLegacyIpc},
        Ability{"WithoutFileHandles", "FAKE_CUDA_FILE_HANDLES=off", Kind::kLegacyIpc,
                Kind::kLegacyIpc},
        Ability{"WithoutRetain", "FAKE_CUDA_MISSING=cuMemRetainAllocationHandle", Kind::kWindow,
                Kind::kLegacyIpc},
        Ability{"WithoutIpc", "FAKE_CUDA_MISSING=cuIpcGetMemHandle", Kind::kWindow,
                Kind::kUnshareable},
        Ability{"WithoutBufferIds", "FAKE_CUDA_BUFFER_IDS=off", Kind::kWindow, Kind::kUnshareable},
        Ability{"WithoutCaptureMode", "FAKE_CUDA_MISSING=cuThreadExchangeStreamCaptureMode",
                Kind::kWindow, Kind::kLegacyIpc},
        Ability{"WithoutAnything",
                "FAKE_CUDA_MISSING=cuMemExportToShareableHandle,cuIpcGetMemHandle",
                Kind::kUnshareable, Kind::kUnshareable}),
    [](const auto& info) { return info.param.name; });

TEST_F(DeviceMemoryProcesses, SayWhatTheImportingDriverLacks) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner importer({"FAKE_CUDA_MISSING=cuMemImportFromShareableHandle,cuIpcOpenMemHandle"});
  void* const window = *memory_->allocate(kMiB);
  void* const plain = cuda_malloc(*memory_, kMiB);
  const auto no_import = importer.open(*memory_->ticket_of(window, kMiB), 0, kMiB);
  const auto no_open = importer.open(*memory_->ticket_of(plain, kMiB), 0, kMiB);
  ASSERT_FALSE(no_import);
  ASSERT_FALSE(no_open);
  EXPECT_EQ(no_import.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(no_import.error().message(), HasSubstr("cuMemImportFromShareableHandle"));
  EXPECT_EQ(no_open.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(no_open.error().message(), HasSubstr("cuIpcOpenMemHandle"));
  EXPECT_EQ(*importer.close(), 0u);
  cuda_free(*memory_, plain);
  EXPECT_TRUE(memory_->release(window));
}

TEST_F(DeviceMemoryProcesses, ReachAPeersOtherDevice) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  MemoryOwner owner({}, 1);
  expect_shared(owner, *owner.allocate(kMiB), kMiB);
  expect_shared(owner, *owner.cuda_malloc(kMiB), kMiB);
}

TEST_F(DeviceMemoryProcesses, SayWhichDevicesCannotReachEachOther) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner importer({"FAKE_CUDA_P2P=none"}, 1);
  void* const window = *memory_->allocate(kMiB);
  void* const plain = cuda_malloc(*memory_, kMiB);
  for (void* const buffer : {window, plain}) {
    const auto mapped = importer.open(*memory_->ticket_of(buffer, kMiB), 0, kMiB);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().code(), ErrorCode::kUnsupported);
    EXPECT_THAT(mapped.error().message(), HasSubstr("device 1"));
    EXPECT_THAT(mapped.error().message(), HasSubstr("device 0"));
  }
  EXPECT_EQ(*importer.close(), 0u);
  cuda_free(*memory_, plain);
  EXPECT_TRUE(memory_->release(window));
}

TEST_F(DeviceMemoryProcesses, SayThatTheDevicesMemoryIsOut) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  MemoryOwner owner({"FAKE_CUDA_MEMORY=8M"});
  const auto pointer = owner.allocate(64 * kMiB);
  ASSERT_FALSE(pointer);
  EXPECT_EQ(pointer.error().code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(pointer.error().message(), HasSubstr("67108864 bytes"));
  EXPECT_THAT(pointer.error().message(), HasSubstr("device 0"));
  EXPECT_TRUE(owner.allocate(4 * kMiB));
  EXPECT_EQ(*owner.close(), 0u);
}

TEST_F(DeviceMemoryProcesses, OfferNoDmaBufWhereTheDeviceHasNone) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  for (const char* environment :
       {"FAKE_CUDA_DMA_BUF=off", "FAKE_CUDA_MISSING=cuMemGetHandleForAddressRange"}) {
    MemoryOwner owner({environment});
    const auto offset = owner.dma_buf_offset(*owner.allocate(kMiB), kMiB);
    EXPECT_EQ(offset.status().code(), ErrorCode::kUnsupported) << offset.status().message();
    EXPECT_EQ(*owner.close(), 0u);
  }
}

}  // namespace
}  // namespace unisono::test
