// The decorators: each fault shows as prescribed, the same each time, and tracing counts right.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/transport/faulty_transport.h"
#include "tests/transport/recorder.h"
#include "tests/transport/tracing_transport.h"
#include "transports/loopback/loopback_transport.h"

namespace unisono {
namespace {

using test::Recorder;

/// Rank 0 with faults, rank 1 without, both on this thread.
struct Pair {
  explicit Pair(const FaultOptions& options)
      : zero(std::make_unique<LoopbackTransport>(hub, 0), options), one(hub, 1) {}

  PostResult post(Transport& from, Rank peer, std::uint64_t sequence, std::size_t bytes,
                  std::uint64_t token = 0) {
    FrameHeader header;
    header.payload_bytes = static_cast<std::uint32_t>(bytes);
    header.total_bytes = bytes;
    header.sequence = sequence;
    std::vector<std::byte> payload(bytes);
    test::fill_payload(payload, 1 - peer, sequence);
    return from.endpoint(peer).post_send(header, payload, token);
  }
  void poll(int times) {
    for (int poll = 0; poll < times; ++poll) {
      zero.poll(at_zero);
      one.poll(at_one);
    }
  }

  std::shared_ptr<LoopbackHub> hub = std::make_shared<LoopbackHub>(2);
  FaultyTransport zero;
  LoopbackTransport one;
  Recorder at_zero;
  Recorder at_one;
};

std::vector<bool> refusals(std::uint64_t seed) {
  Pair pair({.seed = seed, .full_one_in = 4, .full_storm_posts = 3});
  std::vector<bool> refused;
  std::uint64_t sequence = 0;
  for (int post = 0; post < 200; ++post) {
    refused.push_back(pair.post(pair.zero, 1, sequence, 10) == PostResult::kFull);
    if (!refused.back()) ++sequence;
    pair.poll(1);
  }
  pair.poll(2);
  EXPECT_EQ(pair.at_one.count(0), sequence);
  return refused;
}

TEST(FaultyTransport, RefusesInStormsThatTheSeedDetermines) {
  const std::vector<bool> first = refusals(1);
  EXPECT_EQ(first, refusals(1));
  EXPECT_NE(first, refusals(2));
  EXPECT_GT(std::count(first.begin(), first.end(), true), 20);
}

TEST(FaultyTransport, DelaysFramesAndKeepsTheirOrder) {
  Pair pair({.delay_polls_max = 8});
  for (std::uint64_t sequence = 0; sequence < 20; ++sequence) {
    ASSERT_EQ(pair.post(pair.zero, 1, sequence, 100), PostResult::kDone);
  }
  // The receiver has had its chance to take all that has left.
  pair.poll(4);
  EXPECT_LT(pair.at_one.count(0), 20u);
  pair.poll(8);
  EXPECT_EQ(pair.at_one.count(0), 20u);
}

TEST(FaultyTransport, StallsOnePeerForSoManyPolls) {
  Pair pair({.peer = 1, .stall_at_frame = 2, .stall_polls = 50});
  for (std::uint64_t sequence = 0; sequence < 2; ++sequence) pair.post(pair.zero, 1, sequence, 1);
  pair.poll(1);
  EXPECT_EQ(pair.at_one.count(0), 2u);
  pair.post(pair.zero, 1, 2, 1);
  pair.poll(45);
  EXPECT_EQ(pair.at_one.count(0), 2u);
  pair.poll(10);
  EXPECT_EQ(pair.at_one.count(0), 3u);
}

TEST(FaultyTransport, AnswersPendingAndReturnsTheTokenLater) {
  Pair pair({.delay_polls_max = 0, .pending_one_in = 1});
  EXPECT_FALSE(pair.zero.traits().captures_sends);
  ASSERT_EQ(pair.post(pair.zero, 1, 0, 100, 42), PostResult::kPending);
  pair.at_zero.expect_token(1, 42);
  pair.poll(1);
  EXPECT_EQ(pair.at_zero.tokens_returned(), 1u);
  EXPECT_EQ(pair.at_one.count(0), 1u);
}

TEST(FaultyTransport, CancelledFrameThatHasNotLeftIsDropped) {
  Pair pair({.pending_one_in = 1, .stall_at_frame = 0, .stall_polls = 3});
  ASSERT_EQ(pair.post(pair.zero, 1, 0, 100, 42), PostResult::kPending);
  pair.zero.endpoint(1).cancel(42);
  pair.poll(10);
  EXPECT_EQ(pair.at_zero.tokens_returned(), 0u);
  EXPECT_EQ(pair.at_one.count(0), 0u);
}

TEST(FaultyTransport, DropsTheConnectionAtTheFrameAskedFor) {
  Pair pair({.drop_at_frame = 3});
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    pair.post(pair.zero, 1, sequence, 10);
    pair.poll(1);
  }
  EXPECT_FALSE(pair.at_zero.closed_cause(1).has_value());
  EXPECT_EQ(pair.post(pair.zero, 1, 3, 10), PostResult::kDone);
  pair.post(pair.one, 0, 0, 10);
  pair.poll(2);
  EXPECT_EQ(pair.at_one.count(0), 3u);
  EXPECT_EQ(pair.at_zero.count(1), 0u) << "what arrives after the drop is not passed on";
  ASSERT_TRUE(pair.at_zero.closed_cause(1).has_value());
  EXPECT_EQ(pair.at_zero.closed_cause(1)->code(), ErrorCode::kRankFailed);
  EXPECT_EQ(pair.at_zero.closed_cause(1)->rank(), 1);
}

TEST(FaultyTransport, BreaksOffInTheMiddleOfAFrame) {
  for (const auto kind : {Placement::Kind::kInto, Placement::Kind::kDeliver}) {
    Pair pair({.truncate_at_frame = 1});
    pair.at_zero.choose_placement = [kind](const FrameHeader&) { return kind; };
    pair.post(pair.one, 0, 0, 1000);
    pair.post(pair.one, 0, 1, 1000);
    pair.post(pair.one, 0, 2, 1000);
    pair.poll(3);
    EXPECT_EQ(pair.at_zero.count(1), 1u);
    EXPECT_EQ(pair.at_zero.memory_in_use(1).size(), 1000u) << "placed and never received";
    ASSERT_TRUE(pair.at_zero.closed_cause(1).has_value());
    EXPECT_FALSE(pair.at_zero.closed_cause(1)->ok());
  }
}

TEST(TracingTransport, CountsPerPeerAndTellsItsCallback) {
  const auto hub = std::make_shared<LoopbackHub>(2);
  std::vector<TraceEvent::Kind> events;
  TracingTransport zero(std::make_unique<LoopbackTransport>(hub, 0),
                        [&](const TraceEvent& event) { events.push_back(event.kind); });
  LoopbackTransport one(hub, 1);
  Recorder at_zero;
  Recorder at_one;
  FrameHeader header;
  header.payload_bytes = 100;
  header.total_bytes = 100;
  std::vector<std::byte> payload(100);
  test::fill_payload(payload, 0, 0);
  EXPECT_EQ(zero.endpoint(1).post_send(header, payload, 1), PostResult::kDone);
  one.poll(at_one);
  test::fill_payload(payload, 1, 0);
  EXPECT_EQ(one.endpoint(0).post_send(header, payload, 1), PostResult::kDone);
  one.close(Clock::now(), at_one);
  zero.poll(at_zero);

  EXPECT_EQ(zero.name(), "tracing(loopback)");
  EXPECT_EQ(zero.traffic(1).frames_posted, 1u);
  EXPECT_EQ(zero.traffic(1).bytes_posted, 100u);
  EXPECT_EQ(zero.traffic(1).frames_received, 1u);
  EXPECT_EQ(zero.traffic(1).bytes_received, 100u);
  EXPECT_TRUE(zero.traffic(1).closed);
  EXPECT_EQ(zero.traffic(0).frames_posted, 0u);
  using Kind = TraceEvent::Kind;
  EXPECT_EQ(events, (std::vector<Kind>{Kind::kPosted, Kind::kReceived, Kind::kClosed}));
}

TEST(LoopbackHub, RanksOfOneJobFindOneHub) {
  const auto first = LoopbackHub::of_job("job", 2);
  EXPECT_EQ(first, LoopbackHub::of_job("job", 2));
  EXPECT_NE(first, LoopbackHub::of_job("job", 3));
  EXPECT_NE(first, LoopbackHub::of_job("other", 2));
}

}  // namespace
}  // namespace unisono
