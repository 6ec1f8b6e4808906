// A rank that lacks memory for a link: the link ends, and the cause names this rank,
// not its peer.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"
#include "tests/unit/stream_fixture.h"
#include "transports/shm/shm_transport.h"

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
  RecordingSink sinks[2];
  std::unique_ptr<Transport> ranks[2];

  ShmPair() {
    for (const Rank rank : {0, 1}) {
      ranks[rank] = *shm::ShmTransport::make(rank, {1 - rank},
                                             [this](Rank from, Rank) -> Result<shm::RingMemory> {
                                               return shm::RingMemory{memory[from], kRingBytes};
                                             });
    }
  }
};

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

}  // namespace
}  // namespace unisono::test
