// Shared memory by itself: what is taken of a peer's, and a heap's blocks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/memfd.h"
#include "native_fallocate.h"
#include "tests/support/limit.h"
#include "transports/shm/heap.h"
#include "transports/shm/segment.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

/// While it lives fallocate() gets this many bytes done before the next signal.
struct Profiler {
  explicit Profiler(off_t bytes) { fallocate_faults.at_once_max = bytes; }
  ~Profiler() { fallocate_faults.at_once_max = 0; }
  Profiler(const Profiler&) = delete;
};

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

TEST(Mapping, RefusesMemoryWhoseSizeIsNotSealed) {
  const int fd = make_memfd("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING).release();
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  const auto mapping = shm::Mapping::attach(UniqueFd(fd), 4096, 65536);
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code(), ErrorCode::kProtocol);
}

TEST(Mapping, RefusesMemoryOfAnotherSize) {
  const auto made = shm::Mapping::create("small", 8192);
  ASSERT_TRUE(made);
  for (const auto& [bytes_min, bytes_max] : {std::pair(16384, 65536), std::pair(4096, 4096)}) {
    const auto mapping = shm::Mapping::attach(UniqueFd(dup((*made)->fd())), bytes_min, bytes_max);
    ASSERT_FALSE(mapping);
    EXPECT_EQ(mapping.error().code(), ErrorCode::kProtocol);
  }
}

TEST(Mapping, RefusesWhatHasNoSeals) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd writes(ends[1]);
  const auto mapping = shm::Mapping::attach(UniqueFd(ends[0]), 0, 65536);
  ASSERT_FALSE(mapping);
  EXPECT_THAT(mapping.error().message(), HasSubstr("not a memfd of sealed size"));
}

TEST(Mapping, CannotBeShrunkByAPeer) {
  const auto made = shm::Mapping::create("sealed", 8192);
  ASSERT_TRUE(made);
  EXPECT_NE(ftruncate((*made)->fd(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

// Until Linux 6.13 each signal takes back what an unfinished call has reserved, and reserving it
// all takes longer than a profiler's next signal.
TEST(Mapping, IsReservedUnderAProfiler) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const auto made = shm::Mapping::create("profiled", kBytes);
  ASSERT_TRUE(made);
  const Profiler profiler(100'000);
  const Status reserved = (*made)->reserve(5000, kBytes - 5000);
  ASSERT_TRUE(reserved) << reserved.message();
  struct stat facts {};
  ASSERT_EQ(fstat((*made)->fd(), &facts), 0);
  const std::size_t kept = 5000 / page_bytes() * page_bytes();  // nobody has asked for those
  EXPECT_EQ(static_cast<std::size_t>(facts.st_blocks) * 512, kBytes - kept);
}

TEST(Mapping, CannotBeExecuted) {
  constexpr int kSealExec = 0x20;  // F_SEAL_EXEC, which older headers lack
  const auto made = shm::Mapping::create("plain", 8192);
  ASSERT_TRUE(made);
  if ((fcntl((*made)->fd(), F_GET_SEALS) & kSealExec) == 0) {
    const UniqueFd tried(memfd_create("tried", MFD_CLOEXEC | 8));  // MFD_NOEXEC_SEAL
    ASSERT_FALSE(tried) << "the kernel makes files that cannot be executed, and this is none";
    GTEST_SKIP() << "the kernel knows no files that cannot be executed (Linux 6.3)";
  }
  struct stat facts {};
  ASSERT_EQ(fstat((*made)->fd(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0111, 0u);
}

TEST(Mapping, IsOneInAProcess) {
  const auto made = shm::Mapping::create("shared", 8192);
  ASSERT_TRUE(made);
  const auto again = shm::Mapping::attach(UniqueFd(dup((*made)->fd())), 8192, 8192);
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->base(), (*made)->base());
}

// "rd wr sh ...": what the kernel notes of the mapping that begins at `base`.
std::string flags_of_mapping(const void* base) {
  std::ifstream smaps("/proc/self/smaps");
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<std::uintptr_t>(base) << '-';
  std::string line;
  while (std::getline(smaps, line) && !line.starts_with(begin.str())) continue;
  while (std::getline(smaps, line) && !line.starts_with("VmFlags:")) continue;
  return line;
}

TEST(Mapping, IsInNoCoreDump) {
  const auto made = shm::Mapping::create("shared", 8192);
  ASSERT_TRUE(made);
  EXPECT_THAT(flags_of_mapping((*made)->base()), HasSubstr(" dd"));
}

TEST(Heap, GivesAlignedMemoryThatIsItsOwn) {
  const auto heap = std::move(*shm::Heap::create(1 << 20));
  auto* first = static_cast<char*>(*heap->allocate(100));
  auto* second = static_cast<char*>(*heap->allocate(5000));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  EXPECT_GE(std::abs(second - first), 100);
  std::memset(first, 1, 100);
  std::memset(second, 2, 5000);
  EXPECT_EQ(first[99], 1);
  std::uint64_t offset = 0;
  EXPECT_TRUE(heap->locate(second, 5000, &offset));
  int outside = 0;
  EXPECT_FALSE(heap->locate(&outside, sizeof outside, &offset));
  EXPECT_FALSE(heap->locate(second, std::size_t{2} << 20, &offset));
}

TEST(Heap, IsNoLargerThanTheFileSizeLimit) {
  constexpr std::size_t kLimit = std::size_t{3} << 20;
  const Limit file_size(RLIMIT_FSIZE, kLimit);
  const auto heap = shm::Heap::create();
  ASSERT_TRUE(heap) << heap.error().message();
  EXPECT_LE((*heap)->mapping()->bytes(), kLimit);
  EXPECT_TRUE((*heap)->allocate(4096));
}

TEST(Heap, ReusesReleasedMemoryAndMergesIt) {
  const auto heap = std::move(*shm::Heap::create(1 << 20));
  std::vector<void*> blocks;
  for (int i = 0; i < 256; ++i) blocks.push_back(*heap->allocate(4096));
  EXPECT_EQ(heap->allocate(1).error().code(), ErrorCode::kOutOfResources);
  for (const int i : {3, 5, 4}) EXPECT_TRUE(heap->release(blocks[static_cast<std::size_t>(i)]));
  const auto merged = heap->allocate(3 * 4096);
  ASSERT_TRUE(merged);
  EXPECT_EQ(*merged, blocks[3]);
  EXPECT_FALSE(heap->allocate(1)) << "it is full again";
}

TEST(Heap, ReleasedPagesAreZeroWhenGivenAgain) {
  const auto heap = std::move(*shm::Heap::create(1 << 20));
  void* const block = *heap->allocate(8192);
  std::memset(block, 7, 8192);
  ASSERT_TRUE(heap->release(block));
  const auto again = heap->allocate(8192);
  ASSERT_TRUE(again);
  ASSERT_EQ(*again, block);
  EXPECT_EQ(static_cast<char*>(*again)[8191], 0);
}

TEST(Heap, RefusesPointersThatAreNotItsOwn) {
  const auto heap = std::move(*shm::Heap::create(1 << 20));
  auto* const block = static_cast<char*>(*heap->allocate(8192));
  int other = 0;
  EXPECT_EQ(heap->release(&other).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(heap->release(block + 64).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(heap->release(block));
  EXPECT_EQ(heap->release(block).code(), ErrorCode::kInvalidArgument);
}

TEST(Heap, AnswersImpossibleSizesWithAnError) {
  const auto heap = std::move(*shm::Heap::create(1 << 20));
  EXPECT_EQ(heap->allocate(SIZE_MAX).error().code(), ErrorCode::kOutOfResources);
  EXPECT_TRUE(heap->allocate(0));
}

TEST(SingleCopy, IsNotOfferedForMemoryThatTheKernelDoesNotRead) {
  const std::size_t page = page_bytes();
  void* const mapped =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(mapped), 2 * page);
  EXPECT_FALSE(shm::may_be_read({}));
  if (!processes_read_each_other()) GTEST_SKIP() << kUnreadable;
  EXPECT_TRUE(shm::may_be_read(memory));
  ASSERT_EQ(mprotect(memory.data() + page, page, PROT_WRITE), 0);
  EXPECT_TRUE(shm::may_be_read(memory.first(page)));
  EXPECT_FALSE(shm::may_be_read(memory)) << "its end cannot be read";
  ASSERT_EQ(prctl(PR_SET_DUMPABLE, 0), 0);
  EXPECT_FALSE(shm::may_be_read(memory.first(page)));
  ASSERT_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
  munmap(mapped, 2 * page);
}

}  // namespace
}  // namespace unisono::test
