// A rank that lacks memory or descriptors. Of a link: it ends, and the cause names this rank, not
// its peer. Of the shared heap: that goes on.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"
#include "tests/unit/stream_fixture.h"
#include "transports/loopback/loopback_transport.h"
#include "transports/shm/heap.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/frame_writer.h"

namespace {

bool refuses_watches = false;
bool refuses_sockets = false;
bool refuses_accepting = false;
// Connections that are refused yet, and why.
int refused_connections = 0;
int connection_error = 0;

int refused_descriptor() {
  errno = EMFILE;
  return -1;
}

}  // namespace

/// In place of libc's.
extern "C" int socket(int domain, int type, int protocol) noexcept {
  if (refuses_sockets) return refused_descriptor();
  return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
}
extern "C" int connect(int fd, const sockaddr* to, socklen_t bytes) {
  if (refused_connections == 0) return static_cast<int>(syscall(SYS_connect, fd, to, bytes));
  --refused_connections;
  errno = connection_error;
  return -1;
}
extern "C" int accept4(int fd, sockaddr* from, socklen_t* bytes, int flags) {
  if (refuses_accepting) return refused_descriptor();
  return static_cast<int>(syscall(SYS_accept4, fd, from, bytes, flags));
}

/// In place of libc's. Asio's watches, which have pointers for data, are not refused.
extern "C" int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  constexpr std::uint64_t kPointers = std::uint64_t{1} << 40;
  if (refuses_watches && operation == EPOLL_CTL_ADD && event->data.u64 < kPointers) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}

namespace unisono::test {
namespace {

using Family = StreamOptions::Family;

void expect_own(const RecordingSink& sink, Rank self, Rank peer) {
  ASSERT_EQ(sink.closed_causes.count(peer), 1U);
  const Status& cause = sink.closed_causes.at(peer);
  EXPECT_EQ(cause.code(), ErrorCode::kOutOfResources) << cause.message();
  EXPECT_EQ(cause.rank(), self) << cause.message();
  EXPECT_NE(cause.message().find("rank " + std::to_string(self)), std::string::npos)
      << cause.message();
}

/// Ranks 0 and 1 of this host, in this thread.
struct ShmPair {
  static constexpr std::size_t kRingBytes = 64 * 1024;

  alignas(64) std::byte memory[2][kRingBytes] = {};
  bool has_memory = true;
  RecordingSink sinks[2];
  std::unique_ptr<Transport> ranks[2];

  ShmPair() {
    for (const Rank rank : {0, 1}) {
      ranks[rank] = *shm::ShmTransport::make(
          rank, {1 - rank}, [this, rank](Rank from, Rank) -> Result<shm::RingMemory> {
            if (from == rank && !has_memory) return Status(ErrorCode::kOutOfResources, "no memory");
            return shm::RingMemory{memory[from], kRingBytes};
          });
    }
  }
};

TEST(Shortage, OfMemoryForARingIsThisRanksFailure) {
  ShmPair pair;
  pair.has_memory = false;
  EXPECT_EQ(pair.ranks[0]->endpoint(1).post_send(frame_of(0, 0), {}, 0), PostResult::kDone);
  EXPECT_TRUE(pair.ranks[0]->poll(pair.sinks[0]));
  expect_own(pair.sinks[0], 0, 1);
}

TEST(Shortage, OfWatchesIsThisRanksFailure) {
  for (const Family family : {Family::kTcp, Family::kUnix}) {
    Job job(2, family);
    refuses_watches = true;
    job.post(0, 1, frame_of(0, 0), {}, 0);
    EXPECT_TRUE(job.until([&] {
      return !job.sinks[0]->closed_causes.empty() && !job.sinks[1]->closed_causes.empty();
    }));
    refuses_watches = false;
    expect_own(*job.sinks[0], 0, 1);
    expect_own(*job.sinks[1], 1, 0);
  }
}

TEST(Shortage, OfDescriptorsToDialIsThisRanksFailure) {
  for (const Family family : {Family::kTcp, Family::kUnix}) {
    Job job(2, family);
    refuses_sockets = true;
    job.post(0, 1, frame_of(0, 0), {}, 0);
    EXPECT_TRUE(job.until([&] { return !job.sinks[0]->closed_causes.empty(); }));
    refuses_sockets = false;
    expect_own(*job.sinks[0], 0, 1);
  }
}

/// Rank 0 has dialled, or given up. Returns the refusals that were left.
int refuse_more_than_are_tried(Job& job, int error) {
  connection_error = error;
  refused_connections = 9;
  job.post(0, 1, frame_of(0, 0), {}, 0);
  EXPECT_TRUE(job.until(
      [&] { return !job.sinks[0]->closed_causes.empty() || !job.sinks[1]->frames.empty(); }));
  return std::exchange(refused_connections, 0);
}

TEST(Shortage, OfMemoryToConnectIsThisRanksFailure) {
  Job job(2, Family::kTcp);
  EXPECT_GT(refuse_more_than_are_tried(job, ENOBUFS), 0);
  expect_own(*job.sinks[0], 0, 1);
}

// It is no shortage, and goes when the peer accepts.
TEST(Shortage, OfPlacesInAUnixQueueIsWaitedFor) {
  Job job(2, Family::kUnix);
  EXPECT_EQ(refuse_more_than_are_tried(job, EAGAIN), 0);
  EXPECT_TRUE(job.sinks[0]->closed_causes.empty());
}

// Who has a link to every peer is not harmed by a stranger that waits.
TEST(Shortage, OfDescriptorsToAcceptIsThisRanksFailureWhereAPeerMayWait) {
  const LogRecorder quiet;
  Job job(2);
  refuses_accepting = true;
  job.post(0, 1, frame_of(0, 0), {}, 0);
  EXPECT_TRUE(job.until([&] { return !job.sinks[1]->closed_causes.empty(); }));
  refuses_accepting = false;
  expect_own(*job.sinks[1], 1, 0);
}

/// Posts frames until the payload of one is lent, which is its token then, and gives up that one
/// without memory to copy it. What it was is written over.
std::uint64_t cancel_without_memory(Endpoint& to, std::vector<std::byte>& payload) {
  std::uint64_t token = 0;
  while (to.post_send(frame_of(token, payload.size()), payload, token) == PostResult::kDone) {
    ++token;
  }
  refused_bytes = 1000;
  to.cancel(token);
  refused_bytes = 0;
  payload.assign(payload.size(), std::byte{0x5a});
  return token;
}

TEST(Shortage, OfMemoryToEndACancelledFrameEndsTheLinkThroughARing) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  ShmPair pair;
  std::vector<std::byte> payload = pattern(kFramePayloadMax, 1);
  const std::uint64_t token = cancel_without_memory(pair.ranks[0]->endpoint(1), payload);
  EXPECT_FALSE(pair.ranks[0]->has_unsent());
  EXPECT_TRUE(pair.ranks[0]->poll(pair.sinks[0]));
  expect_own(pair.sinks[0], 0, 1);
  EXPECT_TRUE(pair.sinks[0].sent_tokens.empty());
  while (pair.ranks[1]->poll(pair.sinks[1])) {
  }
  EXPECT_EQ(pair.sinks[1].frames.size(), token) << "nothing of the cancelled frame's end comes";
}

TEST(Shortage, OfMemoryToEndACancelledFrameEndsTheLinkThroughASocket) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  for (const Family family : {Family::kTcp, Family::kUnix}) {
    Job job(2, family);
    job.post(0, 1, frame_of(1000, 0), {}, 0);
    ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; }));
    std::vector<std::byte> payload = pattern(kFramePayloadMax, 1);
    const std::uint64_t token = cancel_without_memory(job.transports[0]->endpoint(1), payload);
    ASSERT_TRUE(job.until([&] { return !job.sinks[0]->closed_causes.empty(); }));
    expect_own(*job.sinks[0], 0, 1);
    EXPECT_TRUE(job.sinks[0]->sent_tokens.empty());
    ASSERT_TRUE(job.until([&] { return !job.sinks[1]->closed_causes.empty(); }));
    EXPECT_EQ(job.sinks[1]->frames.size(), token + 1)
        << "nothing of the cancelled frame's end comes";
  }
}

/// Takes no memory itself.
struct CountingSink final : FrameSink {
  int frames = 0;
  int ends = 0;
  Rank blamed = -1;

  Placement place(Rank, const FrameHeader&) override { return {}; }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank, const FrameHeader&) override { ++frames; }
  void sent(Rank, std::uint64_t) override {}
  void closed(Rank, const Status& cause) override {
    ++ends;
    blamed = cause.rank();
  }
};

/// Rank 0 has a frame for rank 1, and one allocation of `victim` is refused while they connect: the
/// frame arrives, or somebody hears whose fault that is. False: there were not so many.
bool arrives_or_is_told(Family family, Rank victim, std::uint64_t nth) {
  Job job(2, family);
  job.post(0, 1, frame_of(0, 0), {}, 0);
  CountingSink sinks[2];
  std::uint64_t left = nth;
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  const auto is_over = [&] { return sinks[1].frames + sinks[0].ends + sinks[1].ends > 0; };
  while (!is_over() && Clock::now() < deadline) {
    for (const Rank rank : {0, 1}) {
      const std::uint64_t before = allocations;
      if (rank == victim && left > 0) refused_allocation = before + left;
      job.transports[rank]->poll(sinks[rank]);
      refused_allocation = 0;
      if (rank == victim) left -= std::min(left, allocations - before);
    }
  }
  EXPECT_TRUE(is_over());
  for (const CountingSink& sink : sinks) EXPECT_TRUE(sink.ends == 0 || sink.blamed == victim);
  return left == 0;
}

TEST(Shortage, OfMemoryWhileConnectingIsMendedOrTold) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const LogRecorder quiet;
  for (const Family family : {Family::kTcp, Family::kUnix}) {
    for (const Rank victim : {0, 1}) {
      std::uint64_t nth = 1;
      while (arrives_or_is_told(family, victim, nth) && !HasFailure()) ++nth;
      EXPECT_FALSE(HasFailure()) << "allocation " << nth << " of rank " << victim;
      EXPECT_GT(nth, 10U);
    }
  }
}

TEST(Shortage, OfMemoryThatLastsIsToldToWhoeverPolls) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  Job job(2);
  job.post(0, 1, frame_of(0, 0), {}, 0);
  bool is_told = false;
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  while (!is_told && Clock::now() < deadline) {
    job.transports[0]->poll(*job.sinks[0]);
    refused_bytes = 1;
    try {
      job.transports[1]->poll(*job.sinks[1]);
    } catch (const std::bad_alloc&) {
      is_told = true;
    }
    refused_bytes = 0;
  }
  EXPECT_TRUE(is_told);
}

TEST(Shortage, OfMemoryToDialLeavesThePeerToTheNextCall) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  bool was_one = true;
  for (std::uint64_t nth = 1; was_one; ++nth) {
    Job job(2);
    refused_allocation = allocations + nth;
    try {
      job.transports[0]->endpoint(1);
    } catch (const std::bad_alloc&) {
    }
    was_one = allocations >= std::exchange(refused_allocation, 0);
    job.post(0, 1, frame_of(0, 0), {}, 0);
    ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; })) << nth;
    ASSERT_LT(nth, 100U);
  }
}

/// Polls while `victim` has no memory for so many bytes, until it would have wanted them.
void poll_until_refused(Job& job, Rank victim, std::size_t bytes) {
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  for (was_refused = false; !was_refused && Clock::now() < deadline;) {
    for (const Rank rank : {0, 1}) {
      refused_bytes = rank == victim ? bytes : 0;
      job.transports[rank]->poll(*job.sinks[rank]);
      refused_bytes = 0;
    }
  }
  EXPECT_TRUE(was_refused);
}

TEST(Shortage, OfMemoryForAFurtherStreamCostsThatStreamAlone) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  for (const Rank victim : {0, 1}) {
    Job job(2, Family::kTcp, [](StreamOptions* options) {
      options->streams = 2;
      options->extra_stream_after_bytes = 1;
    });
    job.post(0, 1, frame_of(0, 0), {}, 0);
    const auto have_come = [&](std::size_t frames) {
      return job.until([&] { return job.sinks[1]->frames.size() == frames; });
    };
    ASSERT_TRUE(have_come(1));
    const std::vector<std::byte> payload = pattern(1000, 1);
    job.post(0, 1, frame_of(1, payload.size(), FrameKind::kData), payload, 1);
    poll_until_refused(job, victim, sizeof(tcp::FrameWriter));
    job.post(0, 1, frame_of(2, payload.size(), FrameKind::kData), payload, 2);
    EXPECT_TRUE(have_come(3));
    for (const Rank rank : {0, 1}) EXPECT_TRUE(job.sinks[rank]->closed_causes.empty());
  }
}

TEST(Shortage, OfMemoryForAFrameOfTheLoopbackLeavesNothingForThePeer) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto hub = std::make_shared<LoopbackHub>(2);
  LoopbackTransport from(hub, 0), to(hub, 1);
  const std::vector<std::byte> payload = pattern(1000, 1);
  refused_bytes = payload.size();
  EXPECT_THROW(from.endpoint(1).post_send(frame_of(0, payload.size()), payload, 0), std::bad_alloc);
  refused_bytes = 0;
  EXPECT_EQ(from.endpoint(1).post_send(frame_of(1, payload.size()), payload, 0), PostResult::kDone);
  RecordingSink sink;
  while (to.poll(sink)) {
  }
  ASSERT_EQ(sink.frames.size(), 1U);
  EXPECT_EQ(sink.frames[0].header.sequence, 1U);
  EXPECT_EQ(sink.frames[0].payload, payload);
}

TEST(Shortage, OfMemoryForItsListsLeavesTheHeapAsItWas) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  was_refused = false;
  bool had_enough = false;
  for (std::uint64_t nth = 1; !had_enough; ++nth) {
    const auto heap = std::move(*shm::Heap::create(kBytes));
    void* first = nullptr;
    refused_allocation = allocations + nth;
    try {
      first = *heap->allocate(4096);
    } catch (const std::bad_alloc&) {
    }
    had_enough = allocations < refused_allocation;
    if (first != nullptr) {
      refused_allocation = allocations + 1;
      EXPECT_TRUE(heap->release(first)) << "gives memory back without any";
    }
    refused_allocation = 0;
    const auto all = heap->allocate(kBytes);
    EXPECT_TRUE(all) << "with allocation " << nth << " refused: " << all.status().message();
  }
  EXPECT_TRUE(was_refused);
}

TEST(Shortage, OfMemoryForTheWordsOfAnEndOfTheLoopbackPutsItOff) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto hub = std::make_shared<LoopbackHub>(2);
  LoopbackTransport rank(hub, 0);
  std::make_unique<LoopbackTransport>(hub, 1).reset();
  RecordingSink sink;
  refused_bytes = 1;
  EXPECT_THROW(rank.poll(sink), std::bad_alloc);
  refused_bytes = 0;
  rank.poll(sink);
  EXPECT_EQ(sink.closed_causes.count(1), 1U);
}

}  // namespace
}  // namespace unisono::test
