// Memory of the caller's that other processes map: what it is found to be, how its owner finds it,
// what readers take of what peers publish, and the way between processes.
#include "transports/shm/registered_memory.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "native_oracle.h"
#include "tests/support/memfd_memory.h"
#include "tests/support/segment_bytes.h"
#include "transports/shm/loan.h"
#include "transports/shm/segment_group.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Path = shm::MemoryPath;

constexpr std::size_t kPage = shm::kPageBytes;

std::string refusal(std::span<const std::byte> memory, int fd, std::uint64_t offset) {
  const auto found = shm::find_file_memory(memory, fd, offset);
  return found ? found->refusal : "error: " + found.error().message();
}

Status error_of(std::span<const std::byte> memory, int fd, std::uint64_t offset) {
  return shm::find_file_memory(memory, fd, offset).status();
}

shm::FileIdentity identity_of(int fd) {
  struct stat facts {};
  EXPECT_EQ(fstat(fd, &facts), 0);
  return {facts.st_dev, facts.st_ino};
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// ---- What memory is -----------------------------------------------------------------------------

TEST(FileMemory, IsFoundWhereverItLiesInItsFile) {
  const MemfdMemory memory(8 * kPage, 3 * kPage);
  EXPECT_EQ(refusal(memory.bytes(), memory.fd(), 3 * kPage), "");
  EXPECT_EQ(refusal(memory.bytes().subspan(100, 5000), memory.fd(), 3 * kPage + 100), "");
  EXPECT_EQ(shm::find_file_memory(memory.bytes(), memory.fd(), 3 * kPage)->file,
            identity_of(memory.fd()));
  // Now it is three lines of /proc/self/maps.
  ASSERT_EQ(mprotect(memory.data() + 2 * kPage, kPage, PROT_READ), 0);
  EXPECT_EQ(refusal(memory.bytes(), memory.fd(), 3 * kPage), "");
}

TEST(FileMemory, IsNotWhatTheCallerOnlySays) {
  const MemfdMemory memory(8 * kPage, kPage);
  const MemfdMemory other(10 * kPage);
  const std::vector<std::byte> plain(3 * kPage);
  const std::size_t rest = reinterpret_cast<std::uintptr_t>(plain.data()) % kPage;
  const std::span<const std::byte> pages(plain.data() + (kPage - rest) % kPage, kPage);
  for (const Status& status :
       {error_of(memory.bytes(), memory.fd(), 0), error_of(memory.bytes(), other.fd(), kPage),
        error_of(pages, other.fd(), 0)}) {
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("not the same memory"));
  }
}

TEST(FileMemory, IsOneFileFromBeginningToEnd) {
  const MemfdMemory memory(8 * kPage);
  const MemfdMemory other(kPage);
  ASSERT_NE(
      mmap(memory.data() + 5 * kPage, kPage, PROT_READ, MAP_SHARED | MAP_FIXED, other.fd(), 0),
      MAP_FAILED);
  EXPECT_EQ(refusal(memory.bytes().first(5 * kPage), memory.fd(), 0), "");
  EXPECT_FALSE(error_of(memory.bytes(), memory.fd(), 0));
  ASSERT_EQ(munmap(memory.data() + 5 * kPage, kPage), 0);
  EXPECT_FALSE(error_of(memory.bytes(), memory.fd(), 0));
  ASSERT_EQ(munmap(memory.data() + 5 * kPage, 3 * kPage), 0);
  EXPECT_FALSE(error_of(memory.bytes(), memory.fd(), 0)) << "nothing at its end";
}

TEST(FileMemory, RefusesPlacesThatCannotBe) {
  const MemfdMemory memory(2 * kPage);
  EXPECT_THAT(error_of(memory.bytes(), memory.fd(), kPage).message(),
              HasSubstr("the file ends at 8192"));
  EXPECT_THAT(error_of(memory.bytes(), memory.fd(), ~std::uint64_t{0} - 100).message(),
              HasSubstr("the file ends at 8192"));
  EXPECT_THAT(error_of(memory.bytes().first(100), memory.fd(), 64).message(),
              HasSubstr("different places of a page"));
  EXPECT_THAT(error_of(memory.bytes(), 12345, 0).message(), HasSubstr("no open descriptor"));
}

TEST(FileMemory, SaysWhyOthersCannotMapIt) {
  const MemfdMemory unsealed(kPage, 0, kUnsealed);
  EXPECT_THAT(refusal(unsealed.bytes(), unsealed.fd(), 0), HasSubstr("F_SEAL_SHRINK)"));
  const MemfdMemory grows(kPage, 0, F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_THAT(refusal(grows.bytes(), grows.fd(), 0), HasSubstr("cannot be sealed"));
  const MemfdMemory own(kPage, 0, kSealed, MAP_PRIVATE);
  EXPECT_THAT(refusal(own.bytes(), own.fd(), 0), HasSubstr("MAP_SHARED"));
  const MemfdMemory memory(kPage);
  const std::string path = "/proc/self/fd/" + std::to_string(memory.fd());
  const UniqueFd reads(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(refusal(memory.bytes(), reads.get(), 0), HasSubstr("not open for writing"));
  const UniqueFd program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(refusal(memory.bytes(), program.get(), 0), HasSubstr("memfd_create()"));
}

// ---- Files of other processes -------------------------------------------------------------------

TEST(FileOfProcess, IsOpenedOnlyWhereItIsTheOneThatWasTold) {
  const MemfdMemory memory(kPage);
  const MemfdMemory other(kPage);
  const shm::FileIdentity file = identity_of(memory.fd());
  EXPECT_TRUE(shm::open_file_of(getpid(), memory.fd(), file));
  EXPECT_EQ(shm::open_file_of(getpid(), other.fd(), file).status().code(), ErrorCode::kProtocol);
  EXPECT_EQ(shm::open_file_of(getpid(), 54321, file).status().code(), ErrorCode::kSystem);
  for (const std::int64_t number : {-1L, 1L << 31, INT64_MIN}) {
    EXPECT_EQ(shm::open_file_of(getpid(), number, file).status().code(), ErrorCode::kProtocol);
    EXPECT_EQ(shm::open_file_of(number, memory.fd(), file).status().code(), ErrorCode::kProtocol);
  }
  EXPECT_EQ(shm::open_file_of(0, memory.fd(), file).status().code(), ErrorCode::kProtocol);
}

// Opening the reading end of a pipe waits for a writer; other files act when they are opened.
TEST(FileOfProcess, NeitherWaitsNorActs) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reads(ends[0]), writes(ends[1]);
  const UniqueFd program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  for (const int fd : {reads.get(), program.get()}) {
    const Status status = shm::open_file_of(getpid(), fd, identity_of(fd)).status();
    EXPECT_EQ(status.code(), ErrorCode::kProtocol) << status.message();
  }
}

TEST(FileView, ShowsAnyPartOfASealedFile) {
  const MemfdMemory memory(3 * kPage);
  memory.data()[5000] = std::byte{7};
  const UniqueFd fd(fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0));
  const auto view = shm::FileView::map(fd, 4990, 20);
  ASSERT_TRUE(view) << view.error().message();
  EXPECT_EQ((*view)->bytes(), 20U);
  EXPECT_EQ((*view)->base()[10], std::byte{7});
}

TEST(FileView, RefusesWhatCouldHurtItsReader) {
  const MemfdMemory memory(3 * kPage);
  const MemfdMemory unsealed(3 * kPage, 0, kUnsealed);
  const UniqueFd fd(fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0));
  const UniqueFd loose(fcntl(unsealed.fd(), F_DUPFD_CLOEXEC, 0));
  EXPECT_EQ(shm::FileView::map(loose, 0, kPage).status().code(), ErrorCode::kProtocol);
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  for (const auto& [offset, bytes] : {std::pair<std::uint64_t, std::uint64_t>{0, 3 * kPage + 1},
                                      {kPage, 2 * kPage + 1},
                                      {kMost - 5, 10},
                                      {0, kMost},
                                      {3 * kPage + 1, 1},
                                      {kPage, 0}}) {
    EXPECT_EQ(shm::FileView::map(fd, offset, bytes).status().code(), ErrorCode::kProtocol)
        << bytes << " bytes from " << offset;
  }
  EXPECT_TRUE(shm::FileView::map(fd, kPage, 2 * kPage));
}

// ---- What a rank has registered, and what others see of it --------------------------------------

struct OwnerAndReader {
  shm::RegisteredTable table{};
  shm::RegisteredRanges ranges{table};
  shm::RegisteredViews views{{{&table, getpid()}}};

  Result<int> add(const MemfdMemory& memory) {
    return ranges.add(memory.bytes(), memory.fd(), identity_of(memory.fd()), 0);
  }
};

TEST(RegisteredRanges, FindWhatLiesWhollyInOne) {
  OwnerAndReader both;
  const MemfdMemory first(2 * kPage), second(kPage);
  std::uint64_t address = 0;
  EXPECT_FALSE(both.ranges.find(first.data(), 1, &address));
  EXPECT_EQ(*both.add(first), 0);
  EXPECT_EQ(*both.add(second), 1);
  EXPECT_TRUE(both.ranges.find(second.data() + 100, kPage - 100, &address));
  EXPECT_EQ(address, (std::uint64_t{1} << 48) + 100);
  EXPECT_TRUE(both.ranges.find(first.data(), 2 * kPage, &address));
  EXPECT_EQ(address, 0U);
  EXPECT_FALSE(both.ranges.find(first.data() + 1, 2 * kPage, &address));
  EXPECT_FALSE(both.ranges.find(first.data() - 1, 2, &address));
  EXPECT_FALSE(both.ranges.find(first.data() + 2 * kPage, 1, &address));
  both.ranges.remove(0);
  EXPECT_FALSE(both.ranges.find(first.data(), 1, &address));
  EXPECT_TRUE(both.ranges.find(second.data(), kPage, &address));
}

TEST(RegisteredRanges, AreBoundedAndCloseTheirDescriptors) {
  OwnerAndReader both;
  const MemfdMemory memory(kPage);
  const std::size_t before = open_descriptors();
  for (std::size_t i = 0; i < shm::kRegisteredMax; ++i) EXPECT_TRUE(both.add(memory));
  EXPECT_EQ(both.add(memory).status().code(), ErrorCode::kOutOfResources);
  EXPECT_EQ(open_descriptors(), before + shm::kRegisteredMax);
  for (std::size_t i = 0; i < shm::kRegisteredMax; ++i) both.ranges.remove(static_cast<int>(i));
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(both.add(memory));
}

TEST(RegisteredRanges, ReserveTheirPages) {
  OwnerAndReader both;
  const MemfdMemory memory(3 * kPage + 100);  // no whole number of pages
  ASSERT_TRUE(both.add(memory));
  struct stat facts {};
  ASSERT_EQ(fstat(memory.fd(), &facts), 0);
  EXPECT_EQ(facts.st_blocks * 512, static_cast<blkcnt_t>(4 * kPage));
  EXPECT_EQ(facts.st_size, static_cast<off_t>(3 * kPage + 100));
}

// A range comes and goes, large and small at other places, while another thread looks for its like.
TEST(RegisteredRanges, NeverMixTwoRanges) {
  OwnerAndReader both;
  const MemfdMemory large(8 * kPage), small(kPage);
  std::atomic<bool> over{false};
  std::uint64_t wrong = 0;
  std::thread looks([&] {
    std::uint64_t address = 0;
    while (!over) {
      // More than there is of the small one; the bytes of the large one would cover it.
      wrong += both.ranges.find(small.data(), 2 * kPage, &address);
      wrong += both.ranges.find(large.data() - kPage, 2 * kPage, &address);
    }
  });
  for (int i = 0; i < 3000; ++i) both.ranges.remove(*both.add(i % 2 == 0 ? large : small));
  over = true;
  looks.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(RegisteredViews, FollowTheirOwner) {
  OwnerAndReader both;
  MemfdMemory first(kPage), second(2 * kPage);
  first.data()[0] = std::byte{1};
  second.data()[0] = std::byte{2};
  const int number = *both.add(first);
  first.close();  // the library has its own
  const auto before = *both.views.open(0, 0);
  EXPECT_EQ(before->base()[0], std::byte{1});
  EXPECT_EQ(*both.views.open(0, 0), before) << "mapped again";
  both.ranges.remove(number);
  EXPECT_EQ(both.views.open(0, 0).status().code(), ErrorCode::kProtocol);
  ASSERT_EQ(*both.add(second), number);
  const auto after = both.views.open(0, 0);
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_EQ((*after)->base()[0], std::byte{2});
  EXPECT_EQ((*after)->bytes(), 2 * kPage);
  EXPECT_EQ(before->base()[0], std::byte{1}) << "of a call that still has it";
}

TEST(RegisteredViews, LetGoOfWhatIsGivenUp) {
  OwnerAndReader both;
  const MemfdMemory first(kPage), second(kPage);
  ASSERT_TRUE(both.add(first));
  const std::weak_ptr<const shm::FileView> seen = *both.views.open(0, 0);
  both.views.drop_stale();
  EXPECT_FALSE(seen.expired());
  both.ranges.remove(0);
  both.views.drop_stale();
  EXPECT_TRUE(seen.expired());
}

TEST(RegisteredViews, TakeNothingFromAHostileOwner) {
  OwnerAndReader both;
  const MemfdMemory memory(kPage), other(kPage), unsealed(kPage, 0, kUnsealed);
  ASSERT_TRUE(both.add(memory));
  shm::RegisteredEntry& entry = both.table.entries[0];
  const auto refused = [&](const char* what) {
    entry.generation += 1;
    const auto view = both.views.open(0, 0);
    EXPECT_EQ(view.status().code(), ErrorCode::kProtocol) << what;
  };
  const int fd = static_cast<int>(entry.fd);
  entry.fd = other.fd();
  refused("another file");
  entry.fd = -1;
  refused("no descriptor");
  entry.fd = fd;
  entry.bytes = kPage + 1;
  refused("beyond the end");
  entry.bytes = ~std::uint64_t{0};
  refused("more than memory has");
  entry.offset = kPage;
  entry.bytes = kPage;
  refused("from the end on");
  entry.offset = 0;
  entry.fd = unsealed.fd();
  entry.inode = identity_of(unsealed.fd()).inode;
  refused("a file that may shrink");
  for (const std::uint64_t number : {std::uint64_t{1}, std::uint64_t{64}, ~std::uint64_t{0}}) {
    EXPECT_EQ(both.views.open(0, number).status().code(), ErrorCode::kProtocol) << number;
  }
}

// ---- Between processes --------------------------------------------------------------------------

// Registered with the rank's segment until the end of the scope.
class Registered {
 public:
  Registered(TestRank& rank, const MemfdMemory& memory) : rank_(rank) {
    const auto found = shm::find_file_memory(memory.bytes(), memory.fd(), 0);
    rank.check(found && found->refusal.empty(), "not a file that can be mapped");
    const auto number = rank.segment->register_memory(memory.bytes(), memory.fd(), found->file, 0);
    rank.check(number.has_value(), number.status().message());
    number_ = *number;
  }
  ~Registered() { rank_.segment->unregister_memory(number_); }

 private:
  TestRank& rank_;
  int number_ = 0;
};

constexpr std::size_t kWords = 100'000;

// What every rank lends the next one; the words are (rank, round, number of the word).
void lend_a_round(TestRank& rank, int round) {
  const auto word = [&](int owner, std::size_t i) {
    return owner * 1'000'000 + round * 200'000 + static_cast<std::int32_t>(i);
  };
  const int next = (rank.self + 1) % rank.size;
  const int before = (rank.self + rank.size - 1) % rank.size;
  const MemfdMemory memory(kWords * sizeof(std::int32_t));
  const Registered registered(rank, memory);
  for (std::size_t i = 0; i < kWords; ++i) memory.as<std::int32_t>()[i] = word(rank.self, i);
  const std::size_t skipped = 4 * static_cast<std::size_t>(round);
  const shm::MemoryHandle loan =
      rank.segment->handle_of(next, memory.bytes().subspan(skipped), false);
  rank.check(loan.path == Path::kRegistered, "lent by another path");
  std::vector<shm::MemoryHandle> all(static_cast<std::size_t>(rank.size));
  rank.check(rank.run({.collective = Collective::kAllGather,
                       .in = &loan,
                       .out = all.data(),
                       .count = sizeof loan})
                 .ok(),
             "no exchange");
  std::vector<std::int32_t> out(kWords - static_cast<std::size_t>(round));
  const Status got = rank.segment->collect(before, all[static_cast<std::size_t>(before)],
                                           std::as_writable_bytes(std::span(out)));
  rank.check(got.ok(), got.message());
  rank.check(out.front() == word(before, static_cast<std::size_t>(round)) &&
                 out.back() == word(before, kWords - 1),
             "wrong bytes");
  rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
}

TEST(RegisteredMemory, IsLentInPlaceAndReplacedByOther) {
  const auto body = [](TestRank& rank) {
    rank.check(rank.segment->readers().cannot_map == -1, "others cannot map");
    for (int round = 0; round < 4; ++round) lend_a_round(rank, round);
  };
  EXPECT_THAT(run_processes(3, {}, body), IsEmpty());
}

TEST(RegisteredMemory, IsOfferedToAllMembersOfAGroup) {
  const auto body = [](TestRank& rank) {
    const MemfdMemory memory(kWords * sizeof(std::int32_t));
    const Registered registered(rank, memory);
    const auto group = rank.segment->open_group(1, {0, 1, 2});
    const shm::MemoryHandle handle = (*group)->handle_of(memory.bytes().subspan(64), false);
    rank.check(handle.path == Path::kRegistered && shm::is_in_place(handle.path),
               "offered otherwise");
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
    // All have registered as much by the same number.
    for (int member = 0; member < 3; ++member) {
      const auto view = (*group)->open(member, handle);
      rank.check(view && view->path == Path::kRegistered && view->mapping != nullptr, "not opened");
    }
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
  };
  EXPECT_THAT(run_processes(3, {}, body), IsEmpty());
}

// Each byte is read where it lies: no rank reserves the window that others would be copied through.
TEST(RegisteredMemory, IsWhatLargeCallsReadInPlace) {
  const auto body = [](TestRank& rank) {
    const auto parts = static_cast<std::size_t>(rank.size);
    const MemfdMemory in(kWords * sizeof(std::int32_t));
    const MemfdMemory out(parts * kWords * sizeof(std::int32_t));
    const Registered registered_in(rank, in), registered_out(rank, out);
    const std::size_t before = reserved_segment_bytes();
    for (std::int32_t round = 0; round < 3; ++round) {
      std::fill_n(in.as<std::int32_t>(), kWords, rank.self + 10 * round);
      rank.check(rank.run({.collective = Collective::kAllGather,
                           .in = in.data(),
                           .out = out.data(),
                           .count = kWords,
                           .type = DataType::kInt32})
                     .ok(),
                 "all_gather");
      for (std::size_t i = 0; i < parts; ++i) {
        rank.check(out.as<std::int32_t>()[(i + 1) * kWords - 1] ==
                       static_cast<std::int32_t>(i) + 10 * round,
                   "wrong words");
      }
    }
    rank.check(reserved_segment_bytes() == before, "went through the window");
  };
  EXPECT_THAT(run_processes(3, {}, body), IsEmpty());
}

std::size_t mappings_of_test_memory() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:test memory") != std::string::npos;
  }
  return count;
}

TEST(RegisteredMemory, IsUnmappedByItsReadersWhenItIsGivenUp) {
  const auto body = [](TestRank& rank) {
    const auto sum = compute::Reduction::make(DataType::kInt32, ops::sum, rank.size);
    for (const Collective collective : {Collective::kAllGather, Collective::kAllReduce}) {
      const MemfdMemory in(kWords * sizeof(std::int32_t));
      const MemfdMemory out(3 * kWords * sizeof(std::int32_t));
      const std::size_t own = mappings_of_test_memory();
      {
        const Registered registered_in(rank, in), registered_out(rank, out);
        const Call call{.collective = collective,
                        .in = in.data(),
                        .out = out.data(),
                        .count = kWords,
                        .type = DataType::kInt32};
        rank.check(rank.run(call, collective == Collective::kAllReduce ? &*sum : nullptr).ok(),
                   "no call");
        rank.check(mappings_of_test_memory() > own, "nothing was mapped");
      }
      rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
      { const Registered another(rank, in); }
      rank.check(mappings_of_test_memory() == own, "still mapped");
      rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
    }
  };
  EXPECT_THAT(run_processes(3, {}, body), IsEmpty());
}

// Ranks 0 and 1 have mapped each other's memory, and wait for rank 2 in vain.
void give_up_after_mapping(TestRank& rank, Collective collective, std::uint32_t block) {
  const auto sum = compute::Reduction::make(DataType::kInt32, ops::sum, rank.size);
  TestRank inner;
  inner.size = rank.size;
  inner.self = rank.self;
  inner.group = std::make_unique<native::Group>(*rank.segment->open_group(block, {0, 1, 2}));
  const MemfdMemory in(kWords * sizeof(std::int32_t)), out(3 * kWords * sizeof(std::int32_t));
  const std::size_t own = mappings_of_test_memory();
  {
    const Registered registered_in(rank, in), registered_out(rank, out);
    if (rank.self != 2) {
      Operation& operation = inner.start({.collective = collective,
                                          .in = in.data(),
                                          .out = out.data(),
                                          .count = kWords,
                                          .type = DataType::kInt32},
                                         &*sum);
      while (mappings_of_test_memory() == own) rank.check(!operation.advance(), "over");
      operation.fail(Status(ErrorCode::kAborted, "given up"));
    }
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
  }
  rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
  { const Registered another(rank, in); }
  rank.check(mappings_of_test_memory() == own, "still mapped");
  rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
}

TEST(RegisteredMemory, IsUnmappedByItsReadersWhenTheirCallHasFailed) {
  EXPECT_THAT(run_processes(3, {},
                            [](TestRank& rank) {
                              give_up_after_mapping(rank, Collective::kAllGather, 1);
                              give_up_after_mapping(rank, Collective::kAllReduce, 2);
                            }),
              IsEmpty());
}

// A group of two threads of one process and another process.
TEST(RegisteredMemory, IsMappedByThreadsOfItsOwnProcessAsWell) {
  std::vector<std::unique_ptr<shm::LocalListener>> listeners;
  for (int i = 0; i < 3; ++i) listeners.push_back(std::move(*shm::LocalListener::open()));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reads(ends[0]), writes(ends[1]);
  const pid_t parent = getpid(), child = fork();
  const auto open_as = [&](int self) {
    shm::LocalPeers peers;
    peers.job_id = "mixed";
    peers.self = self;
    peers.world_ranks = {0, 1, 2};
    peers.pids = {parent, parent, child == 0 ? getpid() : child};
    for (const auto& listener : listeners) peers.addresses.push_back(listener->address());
    return *shm::SharedSegment::open(*listeners[static_cast<std::size_t>(self)], peers,
                                     Clock::now() + std::chrono::seconds(20));
  };
  if (child == 0) {
    writes.reset();
    const auto segment = open_as(2);
    char none;
    _exit(read(reads.get(), &none, 1) == 0 ? 0 : 1);  // until the test is over
  }
  std::shared_ptr<shm::SharedSegment> reader;
  std::thread other([&] { reader = open_as(1); });
  const auto owner = open_as(0);
  other.join();
  const MemfdMemory memory(2 * kPage);
  memory.data()[5000] = std::byte{5};
  const auto found = shm::find_file_memory(memory.bytes(), memory.fd(), 0);
  ASSERT_TRUE(owner->register_memory(memory.bytes(), memory.fd(), found->file, 0));
  const auto offers = std::move(*owner->open_group(1, {0, 1, 2}));
  const auto takes = std::move(*reader->open_group(1, {0, 1, 2}));
  const shm::MemoryHandle handle = offers->handle_of(memory.bytes(), false);
  EXPECT_EQ(handle.path, Path::kRegistered);
  const auto view = takes->open(0, handle);
  ASSERT_TRUE(view) << view.error().message();
  EXPECT_EQ(view->base[5000], std::byte{5});
  EXPECT_EQ(owner->handle_of(1, memory.bytes(), false).path, Path::kPointer);
  writes.reset();
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(RegisteredMemory, IsNotOfferedToThoseWhoCannotOpenIt) {
  const auto body = [](TestRank& rank) {
    const MemfdMemory memory(kWords);
    const Registered registered(rank, memory);
    rank.check(rank.segment->handle_of(1 - rank.self, memory.bytes(), false).path == Path::kNone,
               "lent to who cannot read it");
    const auto group = rank.segment->open_group(1, {0, 1});
    rank.check((*group)->handle_of(memory.bytes(), false).path == Path::kNone, "offered");
    rank.check(rank.segment->readers().cannot_map == 1 - rank.self, "nobody is named");
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
  };
  EXPECT_THAT(run_processes(2, {.knows_processes = false}, body), IsEmpty());
}

TEST(RegisteredMemory, OfThreadsNeedsNoMapping) {
  const auto body = [](TestRank& rank) {
    const MemfdMemory memory(kWords);
    const Registered registered(rank, memory);
    rank.check(rank.segment->handle_of(1 - rank.self, memory.bytes(), false).path == Path::kPointer,
               "lent by another path");
    rank.check(rank.segment->readers().all_are_threads, "threads are taken for processes");
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
}

TEST(RegisteredMemory, HandlesOfHostilePeersNameThem) {
  const auto body = [](TestRank& rank) {
    const MemfdMemory memory(kWords);
    const Registered registered(rank, memory);
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
    std::vector<std::byte> out(1000);
    const int other = 1 - rank.self;
    const auto at = [](std::uint64_t number, std::uint64_t offset) {
      return shm::MemoryHandle{Path::kRegistered, 1000, number << 48 | offset};
    };
    rank.check(rank.segment->collect(other, at(0, kWords - 1000), out).ok(), "a good one");
    for (const shm::MemoryHandle& handle :
         {at(0, kWords - 999), at(0, kWords + 1), at(0, (std::uint64_t{1} << 48) - 1), at(1, 0),
          at(63, 0), at(64, 0), at(65535, 0)}) {
      const Status status = rank.segment->collect(other, handle, out);
      rank.check(status.code() == ErrorCode::kProtocol && status.rank() == other,
                 "collected " + std::to_string(handle.address) + ": " + status.message());
    }
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
  };
  EXPECT_THAT(run_processes(2, {}, body), IsEmpty());
}

}  // namespace
}  // namespace unisono::test
