// Heaps and the segment where the address space has a limit (RLIMIT_AS, `ulimit -v`).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <span>
#include <vector>

#include "native_oracle.h"
#include "tests/support/limit.h"
#include "tests/support/watchdog.h"
#include "transports/shm/segment_group.h"

namespace unisono::test {
namespace {

using testing::IsEmpty;

constexpr rlim_t kGiB = rlim_t{1} << 30;
constexpr std::size_t kBytes = 100'000;

rlim_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  return pages * static_cast<rlim_t>(getpagesize());
}

// For the rest of a forked rank.
void leave_address_space(rlim_t bytes) {
  const rlim_t limit = mapped_bytes() + bytes;
  const rlimit limits{limit, limit};
  if (setrlimit(RLIMIT_AS, &limits) != 0) _exit(2);
}

class AddressSpace : public testing::Test {
 protected:
  void SetUp() override {
    if (is_sanitized()) GTEST_SKIP() << "a sanitizer needs all of the address space";
  }
};

void run_on_heaps(TestRank& rank) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast}) {
    run_and_check(rank, {.collective = collective, .count = 100'003, .heap = true});
  }
}

// How members read memory of this rank's heap.
shm::MemoryPath path_of_heap(TestRank& rank, const std::vector<int>& members) {
  void* const memory = *rank.segment->allocate(kBytes);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(memory), kBytes);
  const auto group = *rank.segment->open_group(1 + static_cast<std::uint32_t>(rank.self), members);
  const shm::MemoryPath path = group->handle_of(bytes, false).path;
  rank.check(rank.segment->release(memory).ok(), "not released");
  return path;
}

std::vector<int> all_of(const TestRank& rank) {
  std::vector<int> members(static_cast<std::size_t>(rank.size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

TEST_F(AddressSpace, IsTakenForAllHeapsWhenTheRanksMeet) {
  const auto body = [](TestRank& rank) {
    leave_address_space(kGiB);
    run_on_heaps(rank);
  };
  EXPECT_THAT(run_processes(3, {.access = AccessPath::kMapped}, body), IsEmpty());
}

TEST_F(AddressSpace, IsSharedByTheSegmentAndAllHeaps) {
  const auto body = [](TestRank& rank) {
    rank.check(path_of_heap(rank, all_of(rank)) == shm::MemoryPath::kHeap, "a heap did not fit");
    run_on_heaps(rank);
  };
  for (const rlim_t gigabytes : {14U, 24U, 30U, 40U, 70U, 100U}) {
    RanksOptions options;
    options.before_meeting = [gigabytes](int) { leave_address_space(gigabytes * kGiB); };
    EXPECT_THAT(run_processes(2, options, body), IsEmpty()) << gigabytes << " GiB";
  }
  RanksOptions options;
  options.before_meeting = [](int) { leave_address_space(24 * kGiB); };
  EXPECT_THAT(run_processes(8, options, body), IsEmpty());
}

TEST_F(AddressSpace, IsSharedByThreads) {
  const Limit limit(RLIMIT_AS, mapped_bytes() + 24 * kGiB);
  EXPECT_THAT(run_threads(4, {}, run_on_heaps), IsEmpty());
}

TEST_F(AddressSpace, IsNotNeededForHeapsThatGoThroughTheWindow) {
  const auto body = [](TestRank& rank) {
    const bool is_small = rank.self == 1;
    const shm::MemoryPath path = path_of_heap(rank, all_of(rank));
    rank.check(path == (is_small ? shm::MemoryPath::kHeap : shm::MemoryPath::kNone),
               "offered by another path");
    rank.check(rank.segment->readers().lacks_heap == (is_small ? -1 : 1), "another one lacks it");
    if (!is_small) {
      rank.check(path_of_heap(rank, {0, 2}) == shm::MemoryPath::kHeap, "not offered where it fits");
    }
    for (const AccessPath access : {AccessPath::kMapped, AccessPath::kWindow, AccessPath::kStreamed,
                                    AccessPath::kSingleCopy, AccessPath::kAutomatic}) {
      rank.access = access;
      run_on_heaps(rank);
    }
  };
  // Of 95 GiB the larger heaps would leave the program hardly anything.
  for (const rlim_t gigabytes : {20U, 95U}) {
    RanksOptions options;
    options.before_meeting = [gigabytes](int self) {
      if (self == 1) leave_address_space(gigabytes * kGiB);
    };
    EXPECT_THAT(run_processes(3, options, body), IsEmpty()) << gigabytes << " GiB";
  }
}

}  // namespace
}  // namespace unisono::test
