// Memory that is watched: whatever takes its pages away is on record when the call returns, by
// whomever it was made; nobody ever hangs in it. Both ways to ask userfaultfd for events.
#include "transports/verbs/memory_monitor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/memfd.h"
#include "base/sanitizers.h"

namespace {

/// What each allocation of this thread does first.
thread_local const std::function<void()>* before_allocation = nullptr;

// clang's thread sanitizer has these itself, and lets nobody replace them.
#if !UNISONO_THREAD_SANITIZER
void* allocate(std::size_t bytes) {
  if (const auto* first = std::exchange(before_allocation, nullptr)) {
    (*first)();
    before_allocation = first;
  }
  return std::malloc(bytes);
}
#endif

}  // namespace

#if !UNISONO_THREAD_SANITIZER
void* operator new(std::size_t bytes) {
  void* const memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace unisono::verbs {
namespace {

using Bytes = std::span<const std::byte>;

const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

/// Anonymous memory, every page present.
std::byte* map(std::size_t pages, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1) {
  void* memory = mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, flags, fd, 0);
  EXPECT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, pages * kPage);
  return static_cast<std::byte*>(memory);
}

Bytes pages_at(const std::byte* memory, std::size_t pages) { return {memory, pages * kPage}; }

std::uint64_t begin_of(Bytes range) { return reinterpret_cast<std::uint64_t>(range.data()); }
std::uint64_t end_of(Bytes range) { return begin_of(range) + range.size(); }

class MemoryMonitorTest : public testing::TestWithParam<WatchMode> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<MemoryMonitor>> made = make_memory_monitor(GetParam());
    if (!made) {
      ASSERT_EQ(made.error().code(), ErrorCode::kUnsupported) << made.error().message();
      GTEST_SKIP() << made.error().message();
    }
    monitor_ = std::move(*made);
  }
  void watch(Bytes pages) {
    const Status status = monitor_->watch(pages);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  /// Whether all of `pages` is among what changed.
  bool takes_note_of(Bytes pages) {
    if (!monitor_->has_changed()) return false;
    std::uint64_t found = 0;
    for (const Bytes range : monitor_->take_changed()) {
      const std::uint64_t begin = std::max(begin_of(range), begin_of(pages));
      const std::uint64_t end = std::min(end_of(range), end_of(pages));
      if (begin < end) found += end - begin;
    }
    return found >= pages.size();
  }
  static void in_another_thread(const std::function<void()>& work) { std::thread(work).join(); }

  std::unique_ptr<MemoryMonitor> monitor_;
};

INSTANTIATE_TEST_SUITE_P(Modes, MemoryMonitorTest,
                         testing::Values(WatchMode::kBest, WatchMode::kMissing),
                         [](const testing::TestParamInfo<WatchMode>& mode) {
                           return mode.param == WatchMode::kBest ? "best" : "missing";
                         });

TEST_P(MemoryMonitorTest, NothingHasChangedBeforeAnythingDoes) {
  std::byte* memory = map(4);
  watch(pages_at(memory, 4));
  std::memset(memory, 2, 4 * kPage);
  EXPECT_FALSE(monitor_->has_changed());
  EXPECT_TRUE(monitor_->take_changed().empty());
  munmap(memory, 4 * kPage);
}

TEST_P(MemoryMonitorTest, NotesUnmappingByThisThreadAndByAnother) {
  for (const bool own : {true, false}) {
    std::byte* memory = map(4);
    watch(pages_at(memory, 4));
    const auto unmap = [&] { munmap(memory, 4 * kPage); };
    own ? unmap() : in_another_thread(unmap);
    EXPECT_TRUE(monitor_->has_changed());
    EXPECT_TRUE(takes_note_of(pages_at(memory, 4)));
    EXPECT_FALSE(monitor_->has_changed());
    monitor_->forget(pages_at(memory, 4));
  }
}

TEST_P(MemoryMonitorTest, NotesDroppedPagesAndTheirNextUseDoesNotHang) {
  for (const bool own : {true, false}) {
    std::byte* memory = map(4);
    watch(pages_at(memory, 4));
    const auto drop = [&] {
      madvise(memory + kPage, kPage, MADV_DONTNEED);
      EXPECT_EQ(memory[kPage], std::byte{0});
    };
    own ? drop() : in_another_thread(drop);
    EXPECT_TRUE(takes_note_of(pages_at(memory + kPage, 1)));
    std::memset(memory, 3, 4 * kPage);
    monitor_->forget(pages_at(memory, 4));
    munmap(memory, 4 * kPage);
  }
}

TEST_P(MemoryMonitorTest, NotesMovedMemoryAndItsNewPlaceIsNotWatched) {
  for (const bool own : {true, false}) {
    std::byte* memory = map(4);
    std::byte* target = map(4);
    watch(pages_at(memory, 4));
    const auto move = [&] {
      ASSERT_EQ(mremap(memory, 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target),
                target);
    };
    own ? move() : in_another_thread(move);
    EXPECT_TRUE(takes_note_of(pages_at(memory, 4)));
    std::memset(target, 4, 4 * kPage);
    munmap(target, 4 * kPage);
    EXPECT_FALSE(monitor_->has_changed());
    monitor_->forget(pages_at(memory, 4));
  }
}

TEST_P(MemoryMonitorTest, MemoryThatGrewIsUsable) {
  std::byte* memory = map(4);
  watch(pages_at(memory, 4));
  void* grown = mremap(memory, 4 * kPage, 4096 * kPage, MREMAP_MAYMOVE);
  ASSERT_NE(grown, MAP_FAILED);
  std::memset(grown, 5, 4096 * kPage);
  monitor_->forget(pages_at(memory, 4));
  munmap(grown, 4096 * kPage);
}

TEST_P(MemoryMonitorTest, NotesMemoryThatIsMappedOver) {
  std::byte* memory = map(4);
  watch(pages_at(memory, 4));
  ASSERT_EQ(mmap(memory + kPage, kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            memory + kPage);
  EXPECT_TRUE(takes_note_of(pages_at(memory + kPage, 1)));
  munmap(memory, 4 * kPage);
}

TEST_P(MemoryMonitorTest, NotesFreeAndReallocOfLargeMemory) {
  for (const bool own : {true, false}) {
    constexpr std::size_t kBytes = 64 << 20;  // above every threshold for memory of its own mapping
    void* memory = std::malloc(kBytes);
    std::memset(memory, 1, kBytes);
    auto* first =
        reinterpret_cast<std::byte*>(reinterpret_cast<std::uint64_t>(memory) / kPage * kPage);
    const Bytes pages(first, kBytes);
    watch(pages);
    void* moved = nullptr;
    const auto resize = [&] { moved = std::realloc(memory, 4 * kBytes); };
    own ? resize() : in_another_thread(resize);
    ASSERT_NE(moved, nullptr);
    std::memset(moved, 2, 4 * kBytes);
    unsigned char resident = 0;
    // The allocators of sanitizers keep freed memory for a while.
    const bool is_kept = mincore(first, kPage, &resident) == 0;
    const bool noted = takes_note_of(pages);
    EXPECT_TRUE(noted || is_kept);
    monitor_->forget(pages);

    first = reinterpret_cast<std::byte*>(reinterpret_cast<std::uint64_t>(moved) / kPage * kPage);
    watch({first, kBytes});
    const auto release = [&] { std::free(moved); };
    own ? release() : in_another_thread(release);
    const bool is_still_kept = mincore(first, kPage, &resident) == 0;
    const bool release_noted = takes_note_of({first, kBytes});
    EXPECT_TRUE(release_noted || is_still_kept);
    monitor_->forget({first, kBytes});
  }
}

TEST_P(MemoryMonitorTest, ForgottenPagesAreNotNotedButNeighboursAre) {
  std::byte* memory = map(8);
  watch(pages_at(memory, 4));
  watch(pages_at(memory + 2 * kPage, 4));
  watch(pages_at(memory + 6 * kPage, 2));
  monitor_->forget(pages_at(memory + 2 * kPage, 4));
  munmap(memory + 4 * kPage, 2 * kPage);
  EXPECT_FALSE(monitor_->has_changed());
  madvise(memory + 3 * kPage, kPage, MADV_DONTNEED);
  EXPECT_TRUE(takes_note_of(pages_at(memory + 3 * kPage, 1)));
  munmap(memory + 6 * kPage, 2 * kPage);
  EXPECT_TRUE(takes_note_of(pages_at(memory + 6 * kPage, 2)));
  munmap(memory, 4 * kPage);
}

TEST_P(MemoryMonitorTest, WatchesTwiceAndForgetsOnce) {
  std::byte* memory = map(2);
  watch(pages_at(memory, 2));
  watch(pages_at(memory, 2));
  monitor_->forget(pages_at(memory, 2));
  munmap(memory, 2 * kPage);
  EXPECT_TRUE(takes_note_of(pages_at(memory, 2)));
  monitor_->forget(pages_at(memory, 2));
  monitor_->forget(pages_at(memory, 2));
}

TEST_P(MemoryMonitorTest, TwoMonitorsOfOneProcessWatchTheSamePages) {
  std::unique_ptr<MemoryMonitor> second = *make_memory_monitor(GetParam());
  std::byte* memory = map(2);
  watch(pages_at(memory, 2));
  ASSERT_TRUE(second->watch(pages_at(memory, 2)).ok());
  second.reset();
  munmap(memory, 2 * kPage);
  EXPECT_TRUE(takes_note_of(pages_at(memory, 2)));
}

TEST_P(MemoryMonitorTest, SharedMemoryIsWatchedToo) {
  std::byte* memory = map(4, MAP_SHARED | MAP_ANONYMOUS);
  watch(pages_at(memory, 4));
  ASSERT_EQ(madvise(memory, kPage, MADV_REMOVE), 0);
  EXPECT_EQ(memory[0], std::byte{0});
  EXPECT_TRUE(takes_note_of(pages_at(memory, 1)));
  munmap(memory, 4 * kPage);
}

TEST_P(MemoryMonitorTest, APageThatWentUnnoticedIsServedAndNoted) {
  const int file = make_memfd("monitored", MFD_CLOEXEC).release();
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(4 * kPage)), 0);
  std::byte* memory = map(4, MAP_SHARED, file);
  watch(pages_at(memory, 4));
  // The file loses the page, and only its next use can tell.
  ASSERT_EQ(
      fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(kPage)), 0);
  in_another_thread([&] { EXPECT_EQ(memory[0], std::byte{0}); });
  if (GetParam() == WatchMode::kMissing) {
    EXPECT_TRUE(takes_note_of(pages_at(memory, 1)));
  }
  munmap(memory, 4 * kPage);
  close(file);
}

TEST_P(MemoryMonitorTest, RefusesWhatCannotBeWatched) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(ftruncate(fileno(file), static_cast<off_t>(kPage)), 0);
  void* mapping = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  const auto* memory = static_cast<const std::byte*>(mapping);
  const Status refused = monitor_->watch(pages_at(memory, 1));
  // A temporary folder in memory can be watched.
  EXPECT_TRUE(refused.ok() || refused.code() == ErrorCode::kUnsupported);
  munmap(mapping, kPage);
  std::fclose(file);
  // Nothing is ever mapped so low, while another thread may map what this one has unmapped.
  const auto* nowhere = reinterpret_cast<const std::byte*>(kPage);
  EXPECT_EQ(monitor_->watch(pages_at(nowhere, 1)).code(), ErrorCode::kUnsupported);
  const auto code = reinterpret_cast<std::uint64_t>(&getpid) / kPage * kPage;
  EXPECT_EQ(monitor_->watch(pages_at(reinterpret_cast<const std::byte*>(code), 1)).code(),
            ErrorCode::kUnsupported);
}

// Who allocates may wait for a lock of malloc's that another thread holds in free(), where that one
// unmaps watched memory.
TEST_P(MemoryMonitorTest, WhoUnmapsNeverWaitsForAnAllocationOfWhoWatches) {
  if (UNISONO_THREAD_SANITIZER) GTEST_SKIP() << "allocations cannot be watched";
  std::byte* memory = map(8);
  watch(pages_at(memory, 8));
  std::atomic<int> unmapped = 0;
  int allocations = 0;
  bool hung = false;
  std::vector<std::thread> others;
  const std::function<void()> unmap_elsewhere = [&] {
    if (hung || allocations == 8) return;
    others.emplace_back([&, page = memory + allocations * kPage] {
      munmap(page, kPage);
      ++unmapped;
    });
    ++allocations;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (unmapped < allocations && !hung) {
      std::this_thread::yield();
      hung = std::chrono::steady_clock::now() > deadline;
    }
  };
  const auto code = reinterpret_cast<std::uint64_t>(&getpid) / kPage * kPage;
  before_allocation = &unmap_elsewhere;
  const Status refused = monitor_->watch(pages_at(reinterpret_cast<const std::byte*>(code), 1));
  before_allocation = nullptr;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(refused.code(), ErrorCode::kUnsupported);
  EXPECT_GT(allocations, 0) << "words of the refusal that needed no memory";
  EXPECT_FALSE(hung) << "the thread that takes events waits for who allocates";
  monitor_->forget(pages_at(memory, 8));
  munmap(memory, 8 * kPage);
}

TEST_P(MemoryMonitorTest, TooManyChangesStandForAllMemory) {
  constexpr std::size_t kPages = 4096;
  std::byte* memory = map(kPages);
  watch(pages_at(memory, kPages));
  for (std::size_t page = 0; page < kPages; page += 2) {
    madvise(memory + page * kPage, kPage, MADV_DONTNEED);
  }
  const std::vector<Bytes> changed = monitor_->take_changed();
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_EQ(changed[0].data(), nullptr);
  EXPECT_EQ(changed[0].size(), SIZE_MAX);
  EXPECT_FALSE(monitor_->has_changed());
  munmap(memory, kPages * kPage);
}

TEST_P(MemoryMonitorTest, AForkedChildWaitsForNobodyAndDisturbsNobody) {
  std::byte* memory = map(4);
  watch(pages_at(memory, 4));
  const pid_t child = fork();
  if (child == 0) {
    madvise(memory, kPage, MADV_DONTNEED);
    memory[0] = std::byte{1};
    munmap(memory, 2 * kPage);
    monitor_.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(monitor_->has_changed());
  munmap(memory, 4 * kPage);
  EXPECT_TRUE(takes_note_of(pages_at(memory, 4)));
}

TEST_P(MemoryMonitorTest, MemoryIsFreeAfterTheMonitorThoughAForkedChildLivesOn) {
  int until[2];
  ASSERT_EQ(pipe(until), 0);
  std::byte* memory = map(8);
  watch(pages_at(memory, 8));
  munmap(memory + 2 * kPage, kPage);
  // What is added to watched memory is watched too, though nobody asked.
  void* grown = mremap(memory + 3 * kPage, 5 * kPage, 64 * kPage, MREMAP_MAYMOVE);
  ASSERT_NE(grown, MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(until[1]);
    _exit(read(until[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(until[0]);
  monitor_.reset();
  madvise(memory, kPage, MADV_DONTNEED);
  memory[0] = std::byte{1};
  munmap(memory, 2 * kPage);
  munmap(grown, 64 * kPage);
  close(until[1]);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(MemoryMonitorTest, IsDestroyedWhileOthersUnmapWatchedMemory) {
  for (int round = 0; round < 50; ++round) {
    std::byte* memory = map(64);
    if (monitor_ == nullptr) monitor_ = std::move(*make_memory_monitor(GetParam()));
    watch(pages_at(memory, 64));
    std::atomic<bool> started = false;
    std::thread other([&] {
      for (std::size_t page = 0; page < 64; ++page) {
        madvise(memory + page * kPage, kPage, MADV_DONTNEED);
        munmap(memory + page * kPage, kPage);
        started = true;
      }
    });
    while (!started) std::this_thread::yield();
    monitor_.reset();
    other.join();
  }
}

// An address that another thread unmapped and a third one got anew must never look unchanged, even
// while the event of the first is on its way.
TEST_P(MemoryMonitorTest, AnAddressMappedAnewIsAlwaysKnownToHaveChanged) {
  std::byte* memory = map(1);
  for (int round = 0; round < 300; ++round) {
    watch(pages_at(memory, 1));
    std::thread unmapper([&] { munmap(memory, kPage); });
    for (;;) {  // as soon as the address can be had, whether or not the unmapper has come back
      void* anew = mmap(memory, kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      if (anew == memory) break;
      std::this_thread::yield();
    }
    EXPECT_TRUE(takes_note_of(pages_at(memory, 1))) << "round " << round;
    memory[0] = std::byte{1};
    unmapper.join();
    monitor_->forget(pages_at(memory, 1));
    monitor_->take_changed();
  }
  munmap(memory, kPage);
}

}  // namespace
}  // namespace unisono::verbs
