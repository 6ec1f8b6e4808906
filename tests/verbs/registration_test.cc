// What the cache of registrations promises: memory is registered once while it lasts, never found
// again once it has changed, given back in the order of use, and never more of it than the bound
// but for what is held.
#include "transports/verbs/registration.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "tests/verbs/direct_memory_double.h"
#include "tests/verbs/registration_double.h"

namespace unisono::verbs {
namespace {

using Pages = std::span<const std::byte>;

const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

class RegistrationTest : public testing::Test {
 protected:
  static constexpr std::size_t kArenaPages = 64;

  RegistrationTest() {
    void* memory = mmap(nullptr, kArenaPages * kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    arena_ = static_cast<std::byte*>(memory);
    use_rails(1);
  }
  ~RegistrationTest() override {
    cache_.reset();
    rails_.clear();
    EXPECT_EQ(device_->regions.size(), 0U);
    EXPECT_EQ(device_->bytes, 0U);
    munmap(arena_, kArenaPages * kPage);
  }

  void use_rails(int count) {
    rails_ = open_rails(device_, count);
    ASSERT_EQ(rails_.size(), static_cast<std::size_t>(count));
    device_->registered = 0;
  }
  RegistrationCache& make_cache(std::size_t pages_max = 1024, bool monitored = true) {
    cache_ = std::make_unique<RegistrationCache>(
        rails_, pages_max * kPage,
        monitored ? std::make_unique<ScriptedMonitor>(&script_) : nullptr);
    return *cache_;
  }
  Pages pages(std::size_t first, std::size_t count) const {
    return {arena_ + first * kPage, count * kPage};
  }
  Registration* acquire(Pages piece) { return acquire(piece, piece); }
  Registration* acquire(Pages piece, Pages around) {
    Result<Registration*> held = cache_->acquire(piece, around);
    EXPECT_TRUE(held) << held.status().message();
    if (!held) return nullptr;
    EXPECT_TRUE((*held)->covers(piece.data(), piece.size()));
    return *held;
  }
  /// Acquires and releases at once; the key tells registrations apart.
  std::uint32_t use(Pages piece) {
    Registration* held = acquire(piece);
    const std::uint32_t key = held->lkey(0);
    cache_->release(held);
    return key;
  }

  std::shared_ptr<RegistrationDouble> device_ = std::make_shared<RegistrationDouble>();
  ScriptedMonitor::Script script_;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<RegistrationCache> cache_;
  std::byte* arena_ = nullptr;
};

TEST_F(RegistrationTest, RegistersOnEveryRail) {
  use_rails(3);
  auto made = Registration::make(rails_, arena_, 2 * kPage);
  ASSERT_TRUE(made);
  EXPECT_EQ(device_->regions.size(), 3U);
  EXPECT_NE((*made)->lkey(0), (*made)->lkey(2));
  EXPECT_EQ((*made)->rkey(1), (*made)->lkey(1) + 1);
  EXPECT_TRUE((*made)->writable());
  for (const auto& region : device_->regions) {
    EXPECT_NE(region.access & IBV_ACCESS_LOCAL_WRITE, 0);
    EXPECT_NE(region.access & IBV_ACCESS_REMOTE_READ, 0);
    EXPECT_EQ(region.access & IBV_ACCESS_REMOTE_WRITE, 0);
  }
}

TEST_F(RegistrationTest, RegistersOnNoRailWhereOneRefuses) {
  use_rails(3);
  int calls = 0;
  device_->verdict = [&](const std::byte*, std::size_t, int) { return ++calls == 3 ? ENOSPC : 0; };
  auto made = Registration::make(rails_, arena_, kPage);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::kOutOfResources);
  EXPECT_NE(made.error().message().find("double0 port 3"), std::string::npos);
  EXPECT_TRUE(device_->regions.empty());
}

TEST_F(RegistrationTest, ReadOnlyMemoryIsForRemoteReadingAloneOnAllRails) {
  use_rails(2);
  for (const int refusal : {EFAULT, EACCES}) {
    device_->verdict = [&](const std::byte*, std::size_t, int access) {
      return (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? refusal : 0;
    };
    auto made = Registration::make(rails_, arena_, kPage);
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_FALSE((*made)->writable());
    EXPECT_EQ(device_->regions.size(), 2U);
    EXPECT_NE(device_->regions.front().access & IBV_ACCESS_REMOTE_READ, 0);
    EXPECT_EQ(Registration::make(rails_, arena_, kPage, IBV_ACCESS_REMOTE_WRITE).status().code(),
              ErrorCode::kInvalidArgument);
  }
}

TEST_F(RegistrationTest, PeersMayWriteOnlyWhereItIsAskedFor) {
  auto made = Registration::make(rails_, arena_, kPage, IBV_ACCESS_REMOTE_WRITE);
  ASSERT_TRUE(made);
  EXPECT_NE(device_->regions.front().access & IBV_ACCESS_REMOTE_WRITE, 0);
  EXPECT_NE(device_->regions.front().access & IBV_ACCESS_REMOTE_READ, 0);
}

TEST_F(RegistrationTest, IsMadeOnceAndFoundAfterwards) {
  make_cache();
  const std::uint32_t key = use(pages(3, 4));
  EXPECT_EQ(use(pages(3, 4)), key);
  EXPECT_EQ(use(pages(4, 2)), key);
  EXPECT_EQ(use({arena_ + 3 * kPage + 7, 100}), key);
  EXPECT_NE(use(pages(6, 2)), key);
  EXPECT_EQ(cache_->counts().made, 2U);
  EXPECT_EQ(cache_->counts().found, 3U);
  EXPECT_EQ(cache_->counts().bytes, 6 * kPage);
}

TEST_F(RegistrationTest, AMessageIsRegisteredWholeWithItsFirstPiece) {
  make_cache();
  const Pages message(arena_ + 100, 8 * kPage);
  Registration* held = acquire(message.subspan(kPage, 50), message);
  EXPECT_EQ(held->begin(), arena_);
  EXPECT_EQ(held->bytes(), 9 * kPage);
  cache_->release(held);
  use(message.subspan(6 * kPage, kPage));
  EXPECT_EQ(cache_->counts().made, 1U);
}

TEST_F(RegistrationTest, ThePieceAloneWhereItsMessageCannotBeRegistered) {
  make_cache();
  device_->verdict = [&](const std::byte*, std::size_t bytes, int) {
    return bytes > 2 * kPage ? EFAULT : 0;
  };
  Registration* held = acquire(pages(4, 1), pages(0, 16));
  EXPECT_EQ(held->begin(), arena_ + 4 * kPage);
  EXPECT_EQ(held->bytes(), kPage);
  cache_->release(held);
}

TEST_F(RegistrationTest, ThePieceAloneWhereItsMessageIsNotAroundIt) {
  make_cache();
  Registration* held = acquire(pages(4, 1), pages(5, 16));
  EXPECT_EQ(held->bytes(), kPage);
  cache_->release(held);
}

TEST_F(RegistrationTest, ThePieceAloneWhereItsMessageExceedsTheBound) {
  make_cache(8);
  Registration* held = acquire(pages(4, 1), pages(0, 16));
  EXPECT_EQ(held->bytes(), kPage);
  cache_->release(held);
}

TEST_F(RegistrationTest, NoMemoryIsRefused) {
  make_cache();
  EXPECT_EQ(cache_->acquire({}, {}).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache_->acquire({arena_, 0U}, pages(0, 1)).status().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(device_->registered, 0);
}

TEST_F(RegistrationTest, MemoryThatCannotBeRegisteredIsAnInvalidArgument) {
  make_cache();
  device_->verdict = [](const std::byte*, std::size_t, int) { return EFAULT; };
  EXPECT_EQ(cache_->acquire(pages(0, 1), pages(0, 2)).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(cache_->counts().bytes, 0U);
}

TEST_F(RegistrationTest, ChangedMemoryIsRegisteredAnew) {
  make_cache();
  const std::uint32_t first = use(pages(0, 4));
  const std::uint32_t other = use(pages(8, 4));
  script_.changed.push_back(pages(3, 5));
  EXPECT_NE(use(pages(0, 4)), first);
  EXPECT_EQ(use(pages(8, 4)), other);
  EXPECT_EQ(cache_->counts().invalidated, 1U);
  EXPECT_EQ(device_->regions.size(), 2U);
  EXPECT_EQ(script_.watched.size(), 2U);
}

TEST_F(RegistrationTest, ChangeOfAllMemoryLeavesNothing) {
  make_cache();
  use(pages(0, 4));
  use(pages(8, 4));
  script_.changed.push_back(Pages(static_cast<const std::byte*>(nullptr), SIZE_MAX));
  use(pages(0, 4));
  EXPECT_EQ(cache_->counts().invalidated, 2U);
  EXPECT_EQ(device_->regions.size(), 1U);
}

TEST_F(RegistrationTest, ChangedWhileHeldLastsUntilReleasedButIsNotFound) {
  make_cache();
  Registration* held = acquire(pages(0, 4));
  Registration* second = acquire(pages(1, 1));
  EXPECT_EQ(held, second);
  script_.changed.push_back(pages(1, 1));
  Registration* anew = acquire(pages(0, 4));
  EXPECT_NE(anew, held);
  EXPECT_EQ(device_->regions.size(), 2U);
  cache_->release(held);
  EXPECT_EQ(device_->regions.size(), 2U);
  cache_->release(second);
  EXPECT_EQ(device_->regions.size(), 1U);
  cache_->release(anew);
  EXPECT_EQ(device_->regions.size(), 1U);
}

TEST_F(RegistrationTest, TheLeastRecentlyUsedIsPushedOutByTheBound) {
  make_cache(8);
  const std::uint32_t first = use(pages(0, 4));
  use(pages(4, 4));
  EXPECT_EQ(use(pages(0, 4)), first);
  use(pages(8, 4));
  EXPECT_EQ(cache_->counts().pushed_out, 1U);
  EXPECT_EQ(cache_->counts().bytes, 8 * kPage);
  EXPECT_EQ(use(pages(0, 4)), first);
  EXPECT_EQ(cache_->counts().made, 3U);
  EXPECT_EQ(script_.watched.size(), 2U);
}

TEST_F(RegistrationTest, HeldOnesPassTheBoundAndReturnBelowIt) {
  make_cache(8);
  std::vector<Registration*> held;
  for (std::size_t i = 0; i < 5; ++i) held.push_back(acquire(pages(4 * i, 4)));
  EXPECT_EQ(cache_->counts().bytes, 20 * kPage);
  EXPECT_EQ(cache_->counts().pushed_out, 0U);
  for (Registration* registration : held) cache_->release(registration);
  EXPECT_EQ(cache_->counts().bytes, 8 * kPage);
}

TEST_F(RegistrationTest, IdleOnesMakeRoomWhereMemoryCannotBeLocked) {
  make_cache();
  device_->bytes_max = 10 * kPage;
  use(pages(0, 4));
  Registration* held = acquire(pages(4, 4));
  use(pages(8, 6));
  EXPECT_EQ(cache_->counts().pushed_out, 1U);
  EXPECT_EQ(device_->bytes, 10 * kPage);
  const Result<Registration*> refused = cache_->acquire(pages(20, 8), pages(20, 8));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfResources);
  EXPECT_EQ(device_->bytes, 4 * kPage);
  cache_->release(held);
  use(pages(20, 8));
}

TEST_F(RegistrationTest, ATooLargeMessageIsNotTriedForEachOfItsPieces) {
  make_cache();
  device_->bytes_max = 4 * kPage;
  int large = 0;
  device_->verdict = [&](const std::byte*, std::size_t bytes, int) {
    large += bytes > 4 * kPage ? 1 : 0;
    return 0;
  };
  for (std::size_t i = 0; i < 8; ++i) cache_->release(acquire(pages(i, 1), pages(0, 8)));
  EXPECT_EQ(large, 1);
}

TEST_F(RegistrationTest, WithoutAMonitorItLastsForItsUseAndIsSharedByConcurrentHolders) {
  make_cache(1024, false);
  Registration* first = acquire(pages(0, 4));
  Registration* second = acquire(pages(1, 2));
  EXPECT_EQ(first, second);
  cache_->release(first);
  EXPECT_EQ(device_->regions.size(), 1U);
  cache_->release(second);
  EXPECT_EQ(device_->regions.size(), 0U);
}

TEST_F(RegistrationTest, UnwatchableAndReadOnlyMemoryLastForTheirUse) {
  make_cache();
  script_.may_watch = [&](Pages range) { return range.data() != arena_; };
  use(pages(0, 4));
  EXPECT_EQ(device_->regions.size(), 0U);
  device_->verdict = [&](const std::byte*, std::size_t, int access) {
    return (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? EFAULT : 0;
  };
  Registration* held = acquire(pages(8, 4));
  EXPECT_FALSE(held->writable());
  cache_->release(held);
  EXPECT_EQ(device_->regions.size(), 0U);
  EXPECT_TRUE(script_.watched.empty());
  device_->verdict = nullptr;
  held = acquire(pages(8, 4));
  EXPECT_TRUE(held->writable());
  cache_->release(held);
}

// Random pieces, holders and changes. Of every page it is known after which registration it
// changed: what is acquired must be newer.
TEST_F(RegistrationTest, RandomUseNeverFindsWhatChangedAndStaysWithinTheBound) {
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](std::size_t bound) { return random() % bound; };
    constexpr std::size_t kBoundPages = 24;
    RegistrationCache& cache = make_cache(kBoundPages);
    std::array<int, kArenaPages> changed_after{};
    std::vector<Registration*> held;
    std::uint64_t acquired = 0;
    for (int operation = 0; operation < 1000; ++operation) {
      const std::size_t first = below(kArenaPages - 8);
      const std::size_t count = 1 + below(8);
      if (const std::size_t kind = below(10); kind < 5) {
        const std::size_t skipped = below(count);
        const Pages piece = pages(first + skipped, 1 + below(count - skipped));
        Registration* registration = acquire(piece, pages(first, count));
        ++acquired;
        held.push_back(registration);
        const auto* region = device_->find(registration->lkey(0));
        ASSERT_NE(region, nullptr);
        for (const std::byte* page = piece.data(); page < piece.data() + piece.size();
             page += kPage) {
          ASSERT_GT(region->serial, changed_after[static_cast<std::size_t>(page - arena_) / kPage]);
        }
      } else if (kind < 9 && !held.empty()) {
        const std::size_t place = below(held.size());
        cache.release(held[place]);
        held.erase(held.begin() + static_cast<long>(place));
      } else {
        script_.changed.push_back(pages(first, count));
        for (std::size_t i = 0; i < count; ++i) changed_after[first + i] = device_->registered;
      }
      std::map<Registration*, std::size_t> distinct;
      for (Registration* registration : held) distinct[registration] = registration->bytes();
      std::size_t held_bytes = 0;
      for (const auto& [registration, bytes] : distinct) held_bytes += bytes;
      ASSERT_EQ(cache.counts().bytes, device_->bytes);
      ASSERT_LE(cache.counts().bytes, std::max(kBoundPages * kPage, held_bytes));
      ASSERT_EQ(script_.watched.size(), device_->regions.size());
    }
    EXPECT_EQ(cache.counts().made + cache.counts().found, acquired);
    EXPECT_GT(cache.counts().found, 0U);
    EXPECT_GT(cache.counts().invalidated, 0U);
    EXPECT_GT(cache.counts().pushed_out, 0U);
    for (Registration* registration : held) cache.release(registration);
    cache_.reset();
    script_ = {};
  }
}

/// A device's memory, offered for the length of a test.
class DeviceRegistrationTest : public RegistrationTest {
 protected:
  DeviceRegistrationTest() : memory_(test::DirectMemoryDouble::offer(16 * kPage)) { make_cache(); }
  ~DeviceRegistrationTest() override { withdraw_direct_memory(*memory_); }
  Pages part(std::size_t first, std::size_t bytes) const {
    return {memory_->begin() + first, bytes};
  }

  std::shared_ptr<test::DirectMemoryDouble> memory_;
};

TEST_F(DeviceRegistrationTest, IsByDmaBufOnEveryRail) {
  use_rails(3);
  make_cache();
  Registration* const held = acquire(part(100, 5000));
  EXPECT_EQ(device_->dma_bufs, 3);
  EXPECT_EQ(memory_->dma_bufs(), 1) << "one file serves all rails";
  EXPECT_TRUE(held->writable());
  EXPECT_TRUE(script_.watched.empty()) << "no mapping of the host's to be watched";
  cache_->release(held);
}

TEST_F(DeviceRegistrationTest, LastsWithAndWithoutAMonitor) {
  for (const bool monitored : {true, false}) {
    make_cache(1024, monitored);
    const std::uint32_t first = use(part(0, kPage));
    EXPECT_EQ(use(part(0, kPage)), first);
    EXPECT_EQ(use(part(10, 100)), first);
    EXPECT_EQ(cache_->counts().made, 1U);
  }
}

TEST_F(DeviceRegistrationTest, IsOfTheWholeBufferWhereTheBoundAllows) {
  Registration* held = acquire(part(kPage, kPage));
  EXPECT_EQ(held->begin(), memory_->begin());
  EXPECT_EQ(held->bytes(), memory_->bytes().size());
  cache_->release(held);
  make_cache(2);
  held = acquire(part(kPage, kPage));
  EXPECT_EQ(held->begin(), memory_->begin() + kPage);
  EXPECT_EQ(held->bytes(), kPage);
  cache_->release(held);
  EXPECT_TRUE(cache_->admits_device(2 * kPage));
  EXPECT_EQ(cache_->admits_device(2 * kPage + 1).code(), ErrorCode::kOutOfResources);
}

TEST_F(DeviceRegistrationTest, IsNotFoundWhereNothingIsOffered) {
  const std::uint32_t first = use(part(0, kPage));
  withdraw_direct_memory(*memory_);
  EXPECT_NE(use(part(0, kPage)), first) << "the same addresses, the host's now";
}

TEST_F(DeviceRegistrationTest, GoesWithItsAllocationWhenOtherMemoryComes) {
  use(part(0, kPage));
  withdraw_direct_memory(*memory_);
  memory_.reset();
  EXPECT_EQ(device_->regions.size(), 1U) << "nobody has asked for anything since";
  memory_ = test::DirectMemoryDouble::offer(kPage);
  use(part(0, kPage));
  EXPECT_EQ(device_->regions.size(), 1U);
  EXPECT_EQ(cache_->counts().invalidated, 1U);
}

TEST_F(DeviceRegistrationTest, OfTheSameAddressesIsNotFoundForAnotherAllocation) {
  const std::byte* const address = memory_->begin();
  const std::uint32_t first = use(part(0, kPage));
  withdraw_direct_memory(*memory_);
  memory_.reset();
  memory_ = test::DirectMemoryDouble::offer(16 * kPage, address);
  ASSERT_EQ(memory_->begin(), address);
  EXPECT_NE(use(part(0, kPage)), first);
  EXPECT_EQ(device_->regions.size(), 1U);
}

TEST_F(DeviceRegistrationTest, RefusalSaysWhoAndWhat) {
  device_->verdict = [](const std::byte*, std::size_t, int) { return EOPNOTSUPP; };
  const auto refused = cache_->acquire(part(0, kPage), part(0, kPage));
  EXPECT_EQ(refused.status().code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("double0 port 1: ibv_reg_dmabuf_mr"), std::string::npos)
      << refused.status().message();
  device_->verdict = nullptr;
}

// What a device has refused once costs the host's memory nothing, and is not asked for again.
TEST_F(DeviceRegistrationTest, RefusalIsRememberedAndPushesNothingOut) {
  for (const int refusal : {ENOMEM, EOPNOTSUPP}) {
    make_cache(20);
    use(pages(0, 8));
    const int before = device_->dma_bufs;
    device_->verdict = [&](const std::byte* begin, std::size_t, int) {
      return begin == memory_->begin() ? refusal : 0;
    };
    EXPECT_FALSE(cache_->acquire(part(0, kPage), part(0, kPage)));
    EXPECT_FALSE(cache_->acquire(part(0, kPage), part(0, kPage)));
    EXPECT_FALSE(cache_->admits_device(1));
    EXPECT_EQ(device_->dma_bufs, before + 1);
    EXPECT_EQ(cache_->counts().pushed_out, 0U);
    device_->verdict = nullptr;
  }
}

TEST_F(DeviceRegistrationTest, IsBoundedTogetherWithTheHosts) {
  make_cache(20);
  use(pages(0, 8));
  use(part(0, kPage));
  EXPECT_EQ(device_->regions.size(), 1U);
  EXPECT_EQ(cache_->counts().pushed_out, 1U);
  EXPECT_EQ(cache_->counts().bytes, 16 * kPage);
}

/// With the real monitor.
class WatchedRegistrationTest : public RegistrationTest {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<MemoryMonitor>> monitor = make_memory_monitor();
    if (!monitor) GTEST_SKIP() << monitor.error().message();
    cache_ = std::make_unique<RegistrationCache>(rails_, std::size_t{1} << 30, std::move(*monitor));
  }
  static std::byte* map_at(std::byte* address, std::size_t count) {
    void* memory = mmap(address, count * kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (address ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    return static_cast<std::byte*>(memory);
  }
};

TEST_F(WatchedRegistrationTest, TheSameAddressMappedAnewIsRegisteredAnew) {
  // The pages around stay mapped: the hole is too small for what other threads of the process map
  // meanwhile (the watching thread's first allocation, for one).
  std::byte* around = map_at(nullptr, 6);
  std::byte* memory = around + kPage;
  const std::uint32_t first = use({memory, 4 * kPage});
  EXPECT_EQ(use({memory, 4 * kPage}), first);
  munmap(memory, 4 * kPage);
  ASSERT_EQ(map_at(memory, 4), memory);
  const std::uint32_t second = use({memory, 4 * kPage});
  EXPECT_NE(second, first);
  EXPECT_EQ(use({memory, 4 * kPage}), second);
  EXPECT_EQ(cache_->counts().invalidated, 1U);
  munmap(around, 6 * kPage);
}

TEST_F(WatchedRegistrationTest, AFilesMappingLastsForItsUse) {
  std::FILE* file = std::tmpfile();
  ASSERT_EQ(ftruncate(fileno(file), static_cast<off_t>(kPage)), 0);
  void* memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::unique_ptr<MemoryMonitor> monitor = *make_memory_monitor();
  const bool is_watchable = monitor->watch({static_cast<std::byte*>(memory), kPage}).ok();
  use({static_cast<std::byte*>(memory), kPage});
  EXPECT_EQ(device_->regions.size(), is_watchable ? 1U : 0U);
  munmap(memory, kPage);
  std::fclose(file);
}

// Each thread maps, hands over, waits for the use to end, unmaps: addresses return all the time. A
// registration that is older than the mapping would be one of memory that is gone.
TEST_F(WatchedRegistrationTest, OthersUnmapWhileTheOwnerAcquires) {
  constexpr int kRounds = 400;
  constexpr std::size_t kThreads = 2;
  struct Handover {
    std::atomic<std::byte*> lent = nullptr;
    std::atomic<bool> done = false;
  };
  std::array<Handover, kThreads> handovers;
  std::vector<std::thread> users;
  for (Handover& handover : handovers) {
    users.emplace_back([&handover] {
      for (int round = 0; round < kRounds; ++round) {
        std::byte* memory = map_at(nullptr, 4);
        handover.lent = memory;
        while (handover.lent.load() != nullptr) std::this_thread::yield();
        munmap(memory, 4 * kPage);
      }
      handover.done = true;
    });
  }
  std::uint64_t uses = 0;
  while (!handovers[0].done || !handovers[1].done) {
    for (Handover& handover : handovers) {
      std::byte* memory = handover.lent.load();
      if (memory == nullptr) continue;
      ++uses;
      const auto made_before = cache_->counts().made;
      Registration* held = acquire({memory, 4 * kPage});
      EXPECT_EQ(cache_->counts().made, made_before + 1) << "an older mapping's registration";
      Registration* again = acquire({memory, 4 * kPage});
      EXPECT_TRUE(again->covers(memory, 4 * kPage));
      cache_->release(again);
      cache_->release(held);
      handover.lent = nullptr;
    }
    std::this_thread::yield();
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(uses, kRounds * kThreads);
  // An unmapping that is heard of late ends the registration of what lies there by then.
  EXPECT_LT(cache_->counts().made, 2 * uses) << "no second use found the first one's registration";
}

}  // namespace
}  // namespace unisono::verbs
