// The side channel of a rank whose memory is used up: the transport beneath it goes on, and what
// was lost is told of the peer that had sent it.
#include "transports/verbs/side_channel.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"
#include "transports/loopback/loopback_transport.h"

namespace unisono::verbs::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using unisono::test::allocations;
using unisono::test::is_sanitized;
using unisono::test::refused_allocation;
using unisono::test::refused_bytes;

class Events final : public SideChannelEvents {
 public:
  std::vector<std::string> messages;
  std::vector<Status> closed;
  std::vector<Rank> short_of_memory;

  Events() { short_of_memory.reserve(4); }
  bool carries_frames(Rank) const override { return false; }
  void message(Rank, std::string_view bytes) override { messages.emplace_back(bytes); }
  void side_closed(Rank, const Status& cause) override { closed.push_back(cause); }
  void stray_frame(Rank) override { ADD_FAILURE() << "a stray frame"; }
  void no_memory(Rank peer) override { short_of_memory.push_back(peer); }
};

class NoSink final : public FrameSink {
 public:
  Placement place(Rank, const FrameHeader&) override { return {}; }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank, const FrameHeader&) override {}
  void sent(Rank, std::uint64_t) override {}
  void closed(Rank, const Status&) override {}
};

/// Rank 0, which suffers, and rank 1, which sends.
struct Pair {
  std::shared_ptr<LoopbackHub> hub = std::make_shared<LoopbackHub>(2);
  Events events, others;
  SideChannel to{std::make_unique<LoopbackTransport>(hub, 0), events};
  SideChannel from{std::make_unique<LoopbackTransport>(hub, 1), others};
  NoSink sink;

  /// One poll of rank 0 with its allocation of this number refused; whether there was one.
  bool poll_refusing(std::uint64_t nth) {
    refused_allocation = allocations + nth;
    to.poll(sink);
    return allocations >= std::exchange(refused_allocation, 0);
  }
};

TEST(SideChannelWithoutMemory, LosesAMessageAndSaysWhose) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const std::string first(300, 'a'), second(300, 'b');
  bool was_one = true;
  for (std::uint64_t nth = 1; was_one; ++nth) {
    Pair pair;
    pair.from.send(0, first);
    was_one = pair.poll_refusing(nth);
    EXPECT_EQ(pair.events.short_of_memory, std::vector<Rank>(was_one ? 1 : 0, 1));
    EXPECT_EQ(pair.events.messages, std::vector<std::string>(was_one ? 0 : 1, first));
    pair.from.send(0, second);
    pair.to.poll(pair.sink);
    ASSERT_FALSE(pair.events.messages.empty());
    EXPECT_EQ(pair.events.messages.back(), second);
    ASSERT_LT(nth, 100U);
  }
}

// What throws does not go out: the sender may say something else instead.
TEST(SideChannelWithoutMemory, SendsWhatItHasTakenAndNothingElse) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  bool was_one = true;
  for (std::uint64_t nth = 1; was_one; ++nth) {
    Pair pair;
    std::string message(300, 'a');
    std::size_t taken = 1;
    refused_allocation = allocations + nth;
    try {
      pair.from.send(0, std::move(message));
    } catch (const std::bad_alloc&) {
      taken = 0;
    }
    was_one = allocations >= std::exchange(refused_allocation, 0);
    pair.from.poll(pair.sink);
    pair.to.poll(pair.sink);
    EXPECT_EQ(pair.events.messages.size(), taken) << "allocation " << nth;
    ASSERT_LT(nth, 100U);
  }
}

TEST(SideChannelWithoutMemory, LosesAnEndAndSaysWhose) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  Pair pair;
  pair.from.close(Clock::now(), pair.sink);
  refused_bytes = 1;
  pair.to.poll(pair.sink);
  refused_bytes = 0;
  EXPECT_THAT(pair.events.closed, IsEmpty());
  EXPECT_THAT(pair.events.short_of_memory, ElementsAre(1));
}

}  // namespace
}  // namespace unisono::verbs::test
