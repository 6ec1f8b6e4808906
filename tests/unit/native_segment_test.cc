// The shared memory segment: exchange of descriptors, seals, strangers, heaps, rings, group blocks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "base/memfd.h"
#include "base/unique_fd.h"
#include "native_oracle.h"
#include "tests/support/limit.h"
#include "tests/support/segment_bytes.h"
#include "tests/support/shared.h"
#include "transports/shm/descriptor_message.h"
#include "transports/shm/heap.h"
#include "transports/shm/loan.h"
#include "transports/shm/segment.h"
#include "transports/shm/segment_group.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

shm::LocalPeers peers_of(const std::vector<const shm::LocalListener*>& listeners, int self) {
  shm::LocalPeers peers;
  peers.job_id = "segment test";
  peers.self = self;
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    peers.world_ranks.push_back(static_cast<Rank>(10 + i));
    peers.pids.push_back(getpid());
    peers.addresses.push_back(listeners[i]->address());
  }
  return peers;
}

TEST(SharedSegment, KnowsItsRanksByWorldNumber) {
  const auto listener = std::move(*shm::LocalListener::open());
  auto segment = shm::SharedSegment::open(*listener, peers_of({listener.get()}, 0), Clock::now());
  ASSERT_TRUE(segment) << segment.error().message();
  EXPECT_EQ((*segment)->size(), 1);
  EXPECT_EQ((*segment)->world_rank(0), 10);
  EXPECT_EQ((*segment)->local_index(10), 0);
  for (const Rank elsewhere : {-1, 0, 9, 11}) {
    EXPECT_EQ((*segment)->local_index(elsewhere), -1) << elsewhere;
  }
}

TEST(SharedSegment, NamesTheRankThatDoesNotCome) {
  const auto first = std::move(*shm::LocalListener::open());
  const auto second = std::move(*shm::LocalListener::open());
  const auto segment = shm::SharedSegment::open(*first, peers_of({first.get(), second.get()}, 0),
                                                Clock::now() + std::chrono::milliseconds(20));
  ASSERT_FALSE(segment);
  EXPECT_EQ(segment.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(segment.error().rank(), 11);
  EXPECT_THAT(segment.error().message(), HasSubstr("rank 11"));
}

TEST(SharedSegment, SaysThatTheLeaderIsOutOfReach) {
  const auto own = std::move(*shm::LocalListener::open());
  auto gone = std::move(*shm::LocalListener::open());
  const shm::LocalPeers peers = peers_of({gone.get(), own.get()}, 1);
  gone.reset();
  const auto segment =
      shm::SharedSegment::open(*own, peers, Clock::now() + std::chrono::seconds(5));
  ASSERT_FALSE(segment);
  EXPECT_EQ(segment.error().rank(), 10);
}

TEST(SharedSegment, RefusesATableWithoutThisRank) {
  const auto listener = std::move(*shm::LocalListener::open());
  const auto segment =
      shm::SharedSegment::open(*listener, peers_of({listener.get()}, 1), Clock::now());
  ASSERT_FALSE(segment);
  EXPECT_EQ(segment.error().code(), ErrorCode::kInvalidArgument);
}

TEST(SharedSegment, ServesABoundedNumberOfRanks) {
  const auto listener = std::move(*shm::LocalListener::open());
  const std::vector<const shm::LocalListener*> too_many(shm::kLocalRanksMax + 1, listener.get());
  const auto segment = shm::SharedSegment::open(*listener, peers_of(too_many, 0), Clock::now());
  ASSERT_FALSE(segment);
  EXPECT_EQ(segment.error().code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(segment.error().message(), HasSubstr("ranks on one host"));
}

std::atomic<int> g_refusals{0};

// More than there is room for.
void say_too_much(int stranger) {
  const std::vector<int> descriptors(shm::kDescriptorsPerMessage + 1, stranger);
  shm::Message hello;
  hello.magic = shm::kDescriptorMessageMagic;
  hello.job_hash = shm::hash_of("another job");
  iovec data{&hello, sizeof hello};
  const std::size_t bytes = descriptors.size() * sizeof(int);
  std::vector<cmsghdr> control(CMSG_SPACE(bytes) / sizeof(cmsghdr) + 1);
  control[0] = {.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  std::memcpy(CMSG_DATA(control.data()), descriptors.data(), bytes);
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = CMSG_SPACE(bytes);
  ASSERT_EQ(sendmsg(stranger, &header, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
}

void say_a_word(int stranger) { ASSERT_EQ(send(stranger, "hello", 5, 0), 5); }

class SharedSegmentStranger : public testing::TestWithParam<void (*)(int stranger)> {};

TEST_P(SharedSegmentStranger, IsRefused) {
  g_refusals = 0;
  log::set_hook([](log::Level, std::string_view message) {
    if (message.find("refused a connection") != std::string_view::npos) ++g_refusals;
  });
  const auto first = std::move(*shm::LocalListener::open());
  const auto second = std::move(*shm::LocalListener::open());
  const int stranger = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, first->address().data(), first->address().size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + first->address().size());
  ASSERT_EQ(connect(stranger, reinterpret_cast<sockaddr*>(&address), length), 0);
  GetParam()(stranger);
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  std::thread other([&] {
    EXPECT_TRUE(
        shm::SharedSegment::open(*second, peers_of({first.get(), second.get()}, 1), deadline));
  });
  EXPECT_TRUE(shm::SharedSegment::open(*first, peers_of({first.get(), second.get()}, 0), deadline));
  other.join();
  close(stranger);
  log::set_hook(nullptr);
  EXPECT_EQ(g_refusals, 1);
}

INSTANTIATE_TEST_SUITE_P(Words, SharedSegmentStranger, testing::Values(&say_a_word, &say_too_much));

// A socket that connects to a listener as a rank would.
UniqueFd connect_to(const shm::LocalListener& listener) {
  UniqueFd stranger(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  const auto length = *shm::make_address(listener.address(), &address);
  EXPECT_EQ(connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  return stranger;
}

TEST(SharedSegment, LogsTheFirstOfManyStrangersOnly) {
  g_refusals = 0;
  log::set_hook([](log::Level, std::string_view message) {
    if (message.find("refused a connection") != std::string_view::npos) ++g_refusals;
  });
  const auto first = std::move(*shm::LocalListener::open());
  const auto second = std::move(*shm::LocalListener::open());
  for (int i = 0; i < 5; ++i) connect_to(*first);
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  std::thread other([&] {
    EXPECT_TRUE(
        shm::SharedSegment::open(*second, peers_of({first.get(), second.get()}, 1), deadline));
  });
  EXPECT_TRUE(shm::SharedSegment::open(*first, peers_of({first.get(), second.get()}, 0), deadline));
  other.join();
  log::set_hook(nullptr);
  EXPECT_EQ(g_refusals, 1);
}

TEST(SharedSegment, EndsAtOnceWhereNoConnectionCanBeAccepted) {
  const auto first = std::move(*shm::LocalListener::open());
  const auto second = std::move(*shm::LocalListener::open());
  const UniqueFd rank = connect_to(*first);
  // Room for the heap and the copy of its descriptor.
  UniqueFd heap(dup(first->fd()));
  UniqueFd copy(dup(first->fd()));
  const Limit files(RLIMIT_NOFILE, static_cast<rlim_t>(copy.get()) + 1);
  heap.reset();
  copy.reset();
  const auto segment = shm::SharedSegment::open(*first, peers_of({first.get(), second.get()}, 0),
                                                Clock::now() + std::chrono::seconds(10));
  EXPECT_EQ(segment.status().code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(segment.status().message(), HasSubstr("cannot accept the ranks of this host"));
}

constexpr int kIsPrivileged = 77;

// As a user without privilege: sends until the system takes no more descriptors, then again when
// they have been received. The exit status: 0 when both went as they should.
int send_more_than_may_be_in_flight() {
  constexpr uid_t kSomebody = 54'321;
  constexpr int kMessagesMax = 100;
  if (geteuid() == 0 && setresuid(kSomebody, kSomebody, kSomebody) != 0) return kIsPrivileged;
  const Limit files(RLIMIT_NOFILE, 24);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 2;
  const UniqueFd from(ends[0]), to(ends[1]);
  const UniqueFd memory = make_memfd("in flight", MFD_CLOEXEC);
  const std::vector<int> some(8, memory.get());
  shm::Message message;
  message.magic = shm::kDescriptorMessageMagic;
  int sent = 0;
  Status outcome;
  while (outcome.ok() && sent < kMessagesMax) {
    outcome =
        shm::send_message(from.get(), message, some, Clock::now() + std::chrono::milliseconds(20));
    if (outcome) ++sent;
  }
  if (sent == kMessagesMax) return kIsPrivileged;
  std::fprintf(stderr, "%s\n", outcome.message().c_str());
  if (outcome.code() != ErrorCode::kTimeout) return 3;
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  for (int i = 0; i < sent; ++i) {
    std::vector<UniqueFd> received;
    if (!shm::receive_message(to.get(), &received, deadline)) return 4;
  }
  return shm::send_message(from.get(), message, some, deadline) ? 0 : 5;
}

TEST(SharedSegment, WaitsWhileTooManyDescriptorsAreOnTheirWay) {
  const pid_t child = fork();
  if (child == 0) _exit(send_more_than_may_be_in_flight());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kIsPrivileged) {
    GTEST_SKIP() << "SKIPPED: the system sets no bound to this user's descriptors in flight";
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(SharedSegment, ARankWithoutAHeapTellsTheLeader) {
  const auto first = std::move(*shm::LocalListener::open());
  const auto second = std::move(*shm::LocalListener::open());
  std::atomic<bool> leader_waits{false};
  std::thread leader([&] {
    shm::LocalPeers peers = peers_of({first.get(), second.get()}, 0);
    peers.watch = [&leader_waits] {
      leader_waits = true;
      return Status();
    };
    const auto segment =
        shm::SharedSegment::open(*first, std::move(peers), Clock::now() + std::chrono::seconds(10));
    EXPECT_EQ(segment.status().code(), ErrorCode::kSystem);
    EXPECT_EQ(segment.status().rank(), 11);
    EXPECT_THAT(segment.status().message(), HasSubstr("rank 11 has no shared memory"));
    EXPECT_THAT(segment.status().message(), HasSubstr("ulimit -f"));
  });
  while (!leader_waits) std::this_thread::yield();
  const Limit file_size(RLIMIT_FSIZE, 4096);
  const auto segment =
      shm::SharedSegment::open(*second, peers_of({first.get(), second.get()}, 1), kNever);
  EXPECT_EQ(segment.status().code(), ErrorCode::kOutOfResources);
  leader.join();
}

TEST(SharedSegment, StopsWaitingForTheDead) {
  const auto first = std::move(*shm::LocalListener::open());
  const auto second = std::move(*shm::LocalListener::open());
  shm::LocalPeers peers = peers_of({first.get(), second.get()}, 0);
  peers.watch = [] { return Status(ErrorCode::kRankFailed, "rank 11 died", 11); };
  const auto segment = shm::SharedSegment::open(*first, std::move(peers), kNever);
  EXPECT_EQ(segment.status().code(), ErrorCode::kRankFailed);
  EXPECT_EQ(segment.status().rank(), 11);
}

TEST(SharedSegment, BlocksThatOnlySomeCouldOpenComeBack) {
  const auto body = [](TestRank& rank) {
    const Call barrier;
    if (rank.self == 0) rank.check(*rank.segment->reserve_block() == 0, "block 0");
    for (const std::size_t opened : {2u, 1u, 0u}) {
      if (rank.self == 0) {
        const auto block = rank.segment->reserve_block();
        rank.check(block.has_value() && *block == 1, "the block was lost");
      }
      rank.check(rank.run(barrier).ok(), "barrier");
      if (static_cast<std::size_t>(rank.self) < opened) {
        auto group = rank.segment->open_group(1, {0, 1, 2});
        rank.check(group.has_value(), "open_group");
        (*group)->set_opened_by(opened);
      }
      if (opened == 0 && rank.self == 0) rank.segment->return_block(1);
      rank.check(rank.run(barrier).ok(), "barrier");
    }
    if (rank.self == 0) rank.check(*rank.segment->reserve_block() == 1, "the block was lost");
  };
  EXPECT_THAT(run_threads(3, {}, body), IsEmpty());
}

TEST(SharedSegment, RingsAreApartAndZeroBeforeUse) {
  const auto body = [](TestRank& rank) {
    const int other = 1 - rank.self;
    auto sent = rank.segment->ring(rank.self, other);
    auto received = rank.segment->ring(other, rank.self);
    rank.check(sent.has_value() && received.has_value(), "ring");
    rank.check(!rank.segment->ring(0, 0).has_value(), "a ring to itself");
    rank.check(!rank.segment->ring(0, 2).has_value(), "a ring to nobody");
    rank.check(!rank.segment->ring(2, 0).has_value(), "a ring from nobody");
    rank.check(!rank.segment->ring(-1, 0).has_value(), "a ring from no rank");
    rank.check(!rank.segment->ring(1, -1).has_value(), "a ring to no rank");
    rank.check(sent->bytes >= (256 << 10) && sent->base != received->base, "size and place");
    rank.check(sent->base[0] == std::byte{0} && sent->base[sent->bytes - 1] == std::byte{0},
               "zero");
    const Call barrier;
    rank.check(rank.run(barrier).ok(), "barrier");
    std::memset(sent->base, rank.self + 1, sent->bytes);
    rank.check(rank.run(barrier).ok(), "barrier");
    rank.check(received->base[received->bytes - 1] == static_cast<std::byte>(other + 1), "content");
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
  EXPECT_THAT(run_processes(2, {}, body), IsEmpty());
}

// What two ranks find out of their messages is not what another two would.
TEST(SharedSegment, RingsKnowAndTellOnlyWhereTwoRanksAre) {
  for (const int ranks : {2, 3}) {
    const auto body = [ranks](TestRank& rank) {
      const auto ring = rank.segment->ring(rank.self, (rank.self + 1) % ranks);
      rank.check(ring.has_value() && (ring->trials != nullptr) == (ranks == 2), "its trials");
    };
    EXPECT_THAT(run_threads(ranks, {}, body), IsEmpty());
  }
}

TEST(SharedSegment, BlocksOfClosedGroupsComeBackEmpty) {
  const auto body = [](TestRank& rank) {
    const Call barrier;
    for (int round = 0; round < 5; ++round) {
      // Rank 0 reserves block 1 again each time: all members have closed it.
      int block = -1;
      if (rank.self == 0) {
        const auto reserved = rank.segment->reserve_block();
        rank.check(reserved.has_value(), "reserve_block");
        block = static_cast<int>(*reserved);
      }
      const Call tell{
          .collective = Collective::kBroadcast, .in = &block, .out = &block, .count = sizeof block};
      rank.check(rank.run(tell).ok(), "broadcast");
      rank.check(block == 1, "block " + std::to_string(block));
      auto opened = rank.segment->open_group(static_cast<std::uint32_t>(block), {0, 1, 2});
      rank.check(opened.has_value(), "open_group");
      TestRank inner;
      inner.size = rank.size;
      inner.self = rank.self;
      inner.segment = rank.segment;
      inner.group = std::make_unique<native::Group>(std::move(*opened));
      inner.access = AccessPath::kWindow;
      for (const std::size_t count : {1u, 30000u}) {
        run_and_check(inner, {Collective::kAllReduce, count});
        run_and_check(inner, {Collective::kAllToAll, count});
      }
      for (const std::string& failure : inner.failures) rank.check(false, failure);
      inner.group.reset();
      rank.check(rank.run(barrier).ok(), "barrier");
    }
  };
  const auto reserve_first = [&body](TestRank& rank) {
    // Block 0 is in use by the outer group.
    const Call barrier;
    if (rank.self == 0) rank.check(*rank.segment->reserve_block() == 0, "block 0");
    rank.check(rank.run(barrier).ok(), "barrier");
    body(rank);
  };
  EXPECT_THAT(run_threads(3, {}, reserve_first), IsEmpty());
}

// Waits for the end of a process that nobody has reaped yet.
void await_end(pid_t process) {
  const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  pollfd entry{handle.get(), POLLIN, 0};
  while (handle && poll(&entry, 1, -1) < 0) {
  }
}

// Rank 2 of three opens block 1 with the others and ends, `as_failure` or as if it went on: then
// it is said to be alive. What rank 0 gets as the next block when the others have closed theirs.
std::vector<std::string> next_block_after_a_death(const RanksOptions& options, bool as_failure,
                                                  std::uint32_t expected) {
  Shared<std::atomic<int>> closed;
  return run_processes(3, options, [&](TestRank& rank) {
    const Call barrier;
    if (rank.self == 0) {
      rank.check(*rank.segment->reserve_block() == 0, "block 0");
      rank.check(*rank.segment->reserve_block() == 1, "block 1");
    }
    rank.check(rank.run(barrier).ok(), "barrier");
    auto group = std::move(*rank.segment->open_group(1, {0, 1, 2}));
    std::int64_t dying = getpid();
    const Call tell{.collective = Collective::kBroadcast,
                    .in = &dying,
                    .out = &dying,
                    .count = sizeof dying,
                    .root = 2};
    rank.check(rank.run(tell).ok(), "broadcast");
    rank.check(rank.run(barrier).ok(), "barrier");
    if (rank.self == 2) _exit(0);
    await_end(static_cast<pid_t>(dying));
    if (as_failure) group->header().raised.store(1);
    group.reset();
    closed->fetch_add(1);
    while (closed->load() < 2) sched_yield();
    if (rank.self == 0) {
      const auto block = rank.segment->reserve_block();
      rank.check(block.has_value() && *block == expected, "another block, or none");
    }
  });
}

TEST(SharedSegment, BlocksComeBackWhenWhoDoesNotCloseThemHasEnded) {
  for (const bool single_copy : {true, false}) {
    EXPECT_THAT(next_block_after_a_death({.single_copy = single_copy}, true, 1), IsEmpty());
    EXPECT_THAT(next_block_after_a_death({.single_copy = single_copy}, false, 2), IsEmpty());
  }
}

// The number may be another process', but not where that has shown this one's memory.
TEST(SharedSegment, BlocksDoNotComeBackWhereItIsNotKnownWhoHasEnded) {
  const RanksOptions unknown{.single_copy = false, .pids_hold = false};
  EXPECT_THAT(next_block_after_a_death(unknown, true, 2), IsEmpty());
  if (!processes_read_each_other()) GTEST_SKIP() << kUnreadable;
  EXPECT_THAT(next_block_after_a_death({.pids_hold = false}, true, 1), IsEmpty());
}

TEST(SharedSegment, SubgroupsNumberTheirMembersFromZero) {
  const auto body = [](TestRank& rank) {
    const std::vector<int> odd = {1, 3};
    const std::vector<int> even = {0, 2};
    const bool is_odd = rank.self % 2 == 1;
    auto opened = rank.segment->open_group(is_odd ? 5 : 6, is_odd ? odd : even);
    rank.check(opened.has_value(), "open_group");
    TestRank inner;
    inner.size = 2;
    inner.self = rank.self / 2;
    inner.segment = rank.segment;
    inner.group = std::make_unique<native::Group>(std::move(*opened));
    inner.access = AccessPath::kWindow;
    for (const std::size_t count : {5u, 30000u})
      run_and_check(inner, {Collective::kAllGather, count});
    for (const std::string& failure : inner.failures) rank.check(false, failure);
    inner.group.reset();
  };
  EXPECT_THAT(run_processes(4, {}, body), IsEmpty());
}

TEST(SharedSegment, OpenGroupRefusesMembersThatMakeNoSense) {
  const auto body = [](TestRank& rank) {
    for (const std::vector<int>& members :
         {std::vector<int>{}, std::vector<int>{0, 0}, std::vector<int>{0, 2},
          std::vector<int>{-1, rank.self}}) {
      const auto group = rank.segment->open_group(3, members);
      rank.check(group.status().code() == ErrorCode::kInvalidArgument, "accepted");
    }
    rank.check(!rank.segment->open_group(shm::kGroupsMax, {0, 1}).has_value(), "block number");
  };
  EXPECT_THAT(run_threads(2, {}, body), IsEmpty());
}

TEST(SharedSegment, SingleCopyIsTakenOnlyWhenAllowed) {
  EXPECT_THAT(run_processes(2, {.access = AccessPath::kSingleCopy, .single_copy = false},
                            [](TestRank& rank) {
                              run_and_check(rank, {Collective::kAllGather, 100000});
                              rank.check(reserved_segment_bytes() > shm::kWindowBytes,
                                         "nothing went through the window");
                            }),
              IsEmpty());
}

// What every rank lends the next one, and what comes of it: rank + i at byte i.
void lend_and_collect(TestRank& rank, shm::MemoryPath expected) {
  constexpr std::size_t kBytes = 100'000;
  const int next = 1 - rank.self;
  std::vector<std::byte> plain(kBytes);
  const bool in_heap = expected == shm::MemoryPath::kHeap;
  std::byte* const mine =
      in_heap ? static_cast<std::byte*>(*rank.segment->allocate(kBytes)) : plain.data();
  for (std::size_t i = 0; i < kBytes; ++i) mine[i] = static_cast<std::byte>(rank.self + i);
  const shm::MemoryHandle loan = rank.segment->handle_of(next, {mine, kBytes}, true);
  rank.check(loan.path == expected, "lent by another path");

  shm::MemoryHandle all[2];
  const Call exchange{
      .collective = Collective::kAllGather, .in = &loan, .out = all, .count = sizeof loan};
  rank.check(rank.run(exchange).ok(), "no exchange");
  std::vector<std::byte> out(kBytes);
  rank.check(rank.segment->collect(next, all[next], out).ok(), "not collected");
  for (std::size_t i = 0; i < kBytes; ++i) {
    if (out[i] != static_cast<std::byte>(next + i)) return rank.check(false, "wrong bytes");
  }
  rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");  // nobody frees what is read
}

TEST(SharedSegment, LendsByTheShortestPath) {
  using Path = shm::MemoryPath;
  EXPECT_THAT(run_threads(2, {}, [](TestRank& rank) { lend_and_collect(rank, Path::kPointer); }),
              IsEmpty());
  EXPECT_THAT(run_processes(2, {}, [](TestRank& rank) { lend_and_collect(rank, Path::kHeap); }),
              IsEmpty());
  EXPECT_THAT(run_processes(2, {.single_copy = false},
                            [](TestRank& rank) {
                              const std::vector<std::byte> plain(1000);
                              rank.check(rank.segment->handle_of(1 - rank.self, plain, true).path ==
                                             Path::kNone,
                                         "lent what nobody can read");
                            }),
              IsEmpty());
}

TEST(SharedSegment, LendsPrivateMemoryOfOtherProcesses) {
  if (!processes_read_each_other()) GTEST_SKIP() << kUnreadable;
  EXPECT_THAT(
      run_processes(2, {},
                    [](TestRank& rank) { lend_and_collect(rank, shm::MemoryPath::kSingleCopy); }),
      IsEmpty());
}

// By frame, size and the owner's wish.
TEST(SharedSegment, LendsWhatItsReceiverWaitsFor) {
  using Path = shm::MemoryPath;
  const auto body = [](TestRank& rank) {
    constexpr std::size_t kLarge = 200'000;
    auto* const heap = static_cast<std::byte*>(*rank.segment->allocate(kLarge));
    const std::vector<std::byte> plain(kLarge);
    const FrameHeader awaited{.kind = FrameKind::kData, .frame_class = FrameClass::kPointToPoint};
    FrameHeader eager = awaited;
    eager.kind = FrameKind::kEager;
    FrameHeader collective = awaited;
    collective.frame_class = FrameClass::kCollective;
    const Rank next = rank.segment->world_rank(1 - rank.self);
    const bool readable = rank.segment->handle_of(1 - rank.self, plain, true).path != Path::kNone;
    const auto path = [&](AccessPath access, const FrameHeader& header,
                          std::span<const std::byte> payload) {
      const auto loans = shm::make_loans(rank.segment, access);
      return payload.size() < loans->bytes_min() ? Path::kNone
                                                 : loans->lend(next, header, payload).path;
    };
    const std::span<const std::byte> shared(heap, kLarge);
    const std::span<const std::byte> own(plain);
    const Path copied = readable ? Path::kSingleCopy : Path::kNone;
    const bool as_said =
        path(AccessPath::kAutomatic, awaited, shared) == Path::kHeap &&
        path(AccessPath::kAutomatic, awaited, own) == copied &&
        path(AccessPath::kAutomatic, awaited, shared.first(10'000)) == Path::kNone &&
        path(AccessPath::kAutomatic, eager, shared) == Path::kNone &&
        path(AccessPath::kAutomatic, collective, shared) == Path::kNone &&
        path(AccessPath::kSingleCopy, awaited, own.first(60'000)) == copied &&
        path(AccessPath::kMapped, awaited, own) == Path::kNone &&
        path(AccessPath::kMapped, awaited, shared) == Path::kHeap &&
        path(AccessPath::kWindow, awaited, shared) == Path::kNone;
    rank.check(as_said, "lent what it should not, or not what it should");
    const auto waits = [&](AccessPath access, std::span<const std::byte> payload) {
      return shm::make_loans(rank.segment, access)->would_lend(next, payload);
    };
    // Nobody is asked for a grant for what goes through the ring.
    const bool waits_as_said =
        waits(AccessPath::kAutomatic, shared) && !waits(AccessPath::kAutomatic, own) &&
        !waits(AccessPath::kAutomatic, shared.first(10'000)) &&
        waits(AccessPath::kSingleCopy, own) == readable && waits(AccessPath::kMapped, shared) &&
        !waits(AccessPath::kMapped, own) && !waits(AccessPath::kWindow, shared);
    rank.check(waits_as_said, "would lend what it should not, or not what it should");
    rank.check(rank.run({Collective::kBarrier}).ok(), "no barrier");
  };
  EXPECT_THAT(run_processes(2, {}, body), IsEmpty());
}

TEST(SharedSegment, CollectsNothingThatAHostilePeerLends) {
  const auto body = [](TestRank& rank) {
    using Path = shm::MemoryPath;
    std::vector<std::byte> out(1000);
    const auto here = reinterpret_cast<std::uint64_t>(out.data());
    for (const shm::MemoryHandle& loan :
         {shm::MemoryHandle{Path::kNone, 1000, here}, shm::MemoryHandle{Path::kInline, 1000, here},
          shm::MemoryHandle{Path::kPointer, 1000, here}, shm::MemoryHandle{Path::kHeap, 1000, ~0ul},
          shm::MemoryHandle{Path::kHeap, 1000, shm::kHeapBytesMax - 1},
          shm::MemoryHandle{Path::kHeap, 999, 0}, shm::MemoryHandle{Path::kSingleCopy, 1000, 16},
          shm::MemoryHandle{static_cast<Path>(99), 1000, here}}) {
      const Status status = rank.segment->collect(1 - rank.self, loan, out);
      rank.check(!status.ok(), "collected by path " + std::to_string(static_cast<int>(loan.path)));
    }
  };
  EXPECT_THAT(run_processes(2, {}, body), IsEmpty());
}

}  // namespace
}  // namespace unisono::test
