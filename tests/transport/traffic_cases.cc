// Claims about frames that arrive: order, headers, sizes, placement.
#include <gtest/gtest.h>

#include "tests/support/seed.h"
#include "tests/transport/cases.h"

namespace unisono::test {
namespace {

constexpr std::size_t kSizes[] = {
    0, 1, 15, 16, 17, 63, 64, 65, 4095, 4096, 8192, 16385, 65537, 262143, kFramePayloadMax};

Rank other(const Seat& seat) { return 1 - seat.rank(); }

void keeps_order_per_peer(Seat& seat) {
  constexpr std::uint64_t kFrames = 3000;
  for (std::uint64_t sent = 0; sent < kFrames; ++sent) {
    if (!seat.send(other(seat), {.bytes = sent % 96})) return;
  }
  seat.await(other(seat), kFrames);
  seat.finish();
}

void carries_every_kind_and_class(Seat& seat) {
  std::uint64_t frames = 0;
  for (const FrameClass frame_class : {FrameClass::kCollective, FrameClass::kPointToPoint}) {
    for (int kind = 1; kind <= static_cast<int>(FrameKind::kLeft); ++kind) {
      seat.send(other(seat), {.bytes = static_cast<std::size_t>(kind),
                              .kind = static_cast<FrameKind>(kind),
                              .frame_class = frame_class,
                              .index = 0x80000000u + static_cast<std::uint32_t>(kind)});
      ++frames;
    }
  }
  if (!seat.await(other(seat), frames)) return;
  std::set<std::pair<int, int>> seen;
  for (const FrameHeader& header : seat.recorder().frames(other(seat))) {
    seen.emplace(static_cast<int>(header.kind), static_cast<int>(header.frame_class));
    const bool data = header.kind == FrameKind::kData;
    EXPECT_EQ(header.payload_bytes, static_cast<std::uint32_t>(header.kind));
    EXPECT_EQ(header.index, 0x80000000u + static_cast<std::uint32_t>(header.kind));
    EXPECT_EQ(header.communicator, 7u);
    EXPECT_EQ(header.offset, data ? 64u : 0u);
    EXPECT_EQ(header.total_bytes, header.payload_bytes + header.offset);
    EXPECT_EQ(header.record.count, header.payload_bytes);
    EXPECT_EQ(header.record.root, other(seat));
  }
  EXPECT_EQ(seen.size(), frames);
  seat.finish();
}

/// Every size, eager and as data, there and back.
void carry_sizes(Seat& seat, Placement::Kind placement) {
  seat.recorder().choose_placement = [placement](const FrameHeader&) { return placement; };
  std::uint64_t frames = 0;
  for (const std::size_t bytes : kSizes) {
    for (const FrameKind kind : {FrameKind::kEager, FrameKind::kData}) {
      if (!seat.send(other(seat), {.bytes = bytes, .kind = kind})) return;
      ++frames;
    }
  }
  if (!seat.await(other(seat), frames)) return;
  std::multiset<std::size_t> arrived;
  for (const FrameHeader& header : seat.recorder().frames(other(seat))) {
    arrived.insert(header.payload_bytes);
  }
  for (const std::size_t bytes : kSizes) EXPECT_EQ(arrived.count(bytes), 2u) << bytes;
  seat.finish();
}

void writes_into_the_target(Seat& seat) { carry_sizes(seat, Placement::Kind::kInto); }

void delivers_pieces_in_order_at_line_offsets(Seat& seat) {
  carry_sizes(seat, Placement::Kind::kDeliver);
  EXPECT_GT(seat.recorder().pieces(), 2 * std::size(kSizes) - 3)
      << "a frame with payload is at least one piece";
}

void discards_what_nobody_wants(Seat& seat) {
  carry_sizes(seat, Placement::Kind::kDiscard);
  EXPECT_EQ(seat.recorder().pieces(), 0u);
}

void keeps_content_of_random_frames_both_ways_at_once(Seat& seat) {
  const SeedTrace trace;
  auto random = random_stream(static_cast<std::uint64_t>(seat.rank()));
  auto placements = random_stream(100);
  seat.recorder().choose_placement = [&](const FrameHeader&) {
    return below(placements, 2) == 0 ? Placement::Kind::kInto : Placement::Kind::kDeliver;
  };
  constexpr std::uint64_t kFrames = 400;
  for (std::uint64_t sent = 0; sent < kFrames; ++sent) {
    const std::size_t bytes_max = sent % 8 == 0 ? kFramePayloadMax : 3000;
    const bool data = below(random, 2) == 0;
    if (!seat.send(other(seat), {.bytes = below(random, bytes_max + 1),
                                 .kind = data ? FrameKind::kData : FrameKind::kEager})) {
      return;
    }
    if (below(random, 4) == 0) seat.poll();
  }
  seat.await(other(seat), kFrames);
  seat.finish();
}

void serves_whoever_asked_for_the_endpoint_first(Seat& seat) {
  // Rank 1 has never asked for its endpoint when the first frame arrives.
  if (seat.rank() == 0) {
    seat.send(1, {.bytes = 100});
    seat.await(1, 1);
  } else {
    seat.await(0, 1);
    seat.send(0, {.bytes = 100});
  }
  seat.finish();
}

void lets_the_sink_post(Seat& seat) {
  constexpr std::uint64_t kRounds = 200;
  const Rank peer = other(seat);
  std::uint64_t owed = 0;
  seat.recorder().on_received = [&](Rank from, const FrameHeader&) {
    if (seat.posted(from) >= kRounds) return;
    // Inside a callback one cannot poll: a refused answer is owed.
    if (seat.try_send(from, {.bytes = 500}) == PostResult::kFull) ++owed;
  };
  if (seat.rank() == 0) seat.send(peer, {.bytes = 500});
  seat.poll_until(
      [&] {
        for (; owed > 0; --owed) {
          if (seat.try_send(peer, {.bytes = 500}) == PostResult::kFull) break;
        }
        return seat.recorder().count(peer) >= kRounds && seat.posted(peer) >= kRounds;
      },
      "answers from callbacks");
  seat.finish();
}

void exchanges_all_to_all(Seat& seat) {
  constexpr std::uint64_t kFrames = 60;
  for (std::uint64_t sent = 0; sent < kFrames; ++sent) {
    for (Rank peer = 0; peer < seat.size(); ++peer) {
      const std::size_t bytes = sent * 700 + static_cast<std::size_t>(peer);
      if (peer != seat.rank() && !seat.send(peer, {.bytes = bytes})) return;
    }
  }
  for (Rank peer = 0; peer < seat.size(); ++peer) {
    if (peer != seat.rank() && !seat.await(peer, kFrames)) return;
  }
  seat.finish();
}

}  // namespace

std::vector<ConformanceCase> traffic_cases() {
  return {
      {"KeepsOrderPerPeer", 2, keeps_order_per_peer},
      {"CarriesEveryKindAndClass", 2, carries_every_kind_and_class},
      {"WritesIntoTheTarget", 2, writes_into_the_target},
      {"DeliversPiecesInOrderAtLineOffsets", 2, delivers_pieces_in_order_at_line_offsets},
      {"DiscardsWhatNobodyWants", 2, discards_what_nobody_wants},
      {"KeepsContentOfRandomFramesBothWaysAtOnce", 2,
       keeps_content_of_random_frames_both_ways_at_once},
      {"ServesWhoeverAskedForTheEndpointFirst", 2, serves_whoever_asked_for_the_endpoint_first},
      {"LetsTheSinkPost", 2, lets_the_sink_post},
      {"ExchangesAllToAll", 4, exchanges_all_to_all},
  };
}

}  // namespace unisono::test
