// Claims about a receiver that is slow: back-pressure, lent payloads, cancelling, abandoning.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "tests/transport/cases.h"

namespace unisono::test {
namespace {

void refuses_when_full_and_recovers(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    const std::uint64_t taken = seat.send_until_full(1, {.bytes = 20000});
    EXPECT_GT(taken, 0u);
    seat.barrier();
    for (int more = 0; more < 100; ++more) {
      if (!seat.send(1, {.bytes = 20000})) return;
    }
    seat.send(1, {.bytes = 1, .index = 99});
  } else {
    seat.barrier();
    const auto last_has_come = [&] {
      const auto& frames = seat.recorder().frames(0);
      return !frames.empty() && frames.back().index == 99;
    };
    if (!seat.poll_until(last_has_come, "the last frame")) return;
    EXPECT_EQ(seat.recorder().count(0), seat.recorder().frames(0).back().sequence + 1)
        << "every frame that was taken has arrived";
  }
  seat.finish();
}

void returns_each_token_once_and_from_poll(Seat& seat) {
  const Rank peer = 1 - seat.rank();
  if (!seat.greet_everyone()) return;
  constexpr std::uint64_t kFrames = 16;
  std::uint64_t pending = 0;
  while (seat.posted(peer) < kFrames) {
    switch (seat.try_send(peer, {.bytes = kFramePayloadMax, .kind = FrameKind::kData})) {
      case PostResult::kFull:
        if (!seat.poll()) std::this_thread::yield();
        break;
      case PostResult::kPending:
        ++pending;
        break;
      case PostResult::kDone:
        break;
    }
  }
  if (!seat.await(peer, kFrames) || !seat.await_tokens()) return;
  EXPECT_EQ(seat.recorder().tokens_returned(), pending);
  seat.finish();
}

void slow_receiver_blocks_nobody_else(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 2) {
    seat.barrier();
    const auto both_last = [&] {
      for (const Rank peer : {0, 1}) {
        const auto& frames = seat.recorder().frames(peer);
        if (frames.back().index != 99) return false;
      }
      return true;
    };
    if (!seat.poll_until(both_last, "all that was sent to the slow rank")) return;
    for (const Rank peer : {0, 1}) {
      EXPECT_EQ(seat.recorder().count(peer), seat.recorder().frames(peer).back().sequence + 1);
    }
  } else {
    const Rank peer = 1 - seat.rank();
    seat.send_until_full(2, {.bytes = 50000});
    for (std::uint64_t round = 0; round < 300; ++round) {
      if (!seat.send(peer, {.bytes = 1000}) || !seat.await(peer, round + 2)) return;
    }
    // What was posted may still wait here for a poll, and the peer for it.
    seat.barrier_polling();
    seat.send(2, {.bytes = 1, .index = 99});
  }
  seat.finish();
}

void cancelled_frames_leave_the_channel_intact(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    seat.send_until_full(1, {.bytes = kFramePayloadMax});
    const std::uint64_t posted = seat.posted(1);
    const std::uint64_t cancelled = seat.cancel_all(1);
    EXPECT_LT(cancelled, posted);
    seat.barrier();
    for (int more = 0; more < 20; ++more) {
      if (!seat.send(1, {.bytes = 5000, .index = 50})) return;
    }
    seat.send(1, {.bytes = 1, .index = 99});
  } else {
    seat.barrier();
    // What arrives is compared by the recorder: a cancelled frame that had begun is whole.
    const auto last_has_come = [&] { return seat.recorder().frames(0).back().index == 99; };
    if (!seat.poll_until(last_has_come, "the frame after the cancelled ones")) return;
    const auto& frames = seat.recorder().frames(0);
    const auto later = std::count_if(frames.begin(), frames.end(),
                                     [](const FrameHeader& frame) { return frame.index == 50; });
    EXPECT_EQ(later, 20);
  }
  seat.finish();
}

void abandoned_memory_is_not_written(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    const std::uint64_t taken = seat.send_until_full(1, {.bytes = kFramePayloadMax});
    seat.barrier();
    seat.barrier();
    for (std::uint64_t sent = taken; sent < taken + 3; ++sent) {
      if (!seat.send(1, {.bytes = 100})) return;
    }
    seat.send(1, {.bytes = 1, .index = 99});
  } else {
    seat.barrier();
    // Polls until a frame has arrived in part. Streams cut frames anywhere; the others need not.
    const bool cuts_frames = seat.transport().name() == "tcp" || seat.transport().name() == "unix";
    const auto in_part = [&] { return !seat.recorder().memory_in_use(0).empty(); };
    if (cuts_frames && !seat.poll_until(in_part, "a frame in part")) return;
    while (!in_part() && seat.poll()) {
    }
    const std::span<std::byte> memory = seat.recorder().memory_in_use(0);
    if (!memory.empty()) {
      seat.transport().endpoint(0).abandon(memory.data(), memory.size());
      seat.recorder().expect_abandoned(0);
      std::fill(memory.begin(), memory.end(), std::byte{0x5a});
    }
    const std::uint64_t before = seat.recorder().count(0);
    seat.recorder().on_received = [&](Rank, const FrameHeader&) {
      if (memory.empty() || seat.recorder().count(0) != before + 1) return;
      EXPECT_TRUE(std::all_of(seat.recorder().last_memory().begin(),
                              seat.recorder().last_memory().end(),
                              [](std::byte byte) { return byte == std::byte{0x5a}; }))
          << "the transport wrote into memory that had gone back to its owner";
    };
    seat.barrier();
    const auto last_has_come = [&] { return seat.recorder().frames(0).back().index == 99; };
    seat.poll_until(last_has_come, "the frames after the abandoned one");
  }
  seat.finish();
}

void says_whether_anything_waits_for_poll(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    const std::string_view name = seat.transport().name();
    const bool lends_what_waits = name == "shm" || name == "tcp" || name == "unix";
    const auto nothing_waits = [&] { return !seat.has_unsent(); };
    for (const bool cancels : {false, true}) {
      if (!seat.poll_until(nothing_waits, "the end of what waited")) return;
      if (cancels && !seat.barrier()) return;  // nobody takes what the next ones are
      seat.send_until_full(1, {.bytes = kFramePayloadMax});
      const bool is_lent = lends_what_waits && seat.recorder().tokens_outstanding(1) > 0;
      EXPECT_TRUE(seat.has_unsent() || !is_lent);
      if (cancels) seat.cancel_all(1);
      seat.barrier();
    }
    seat.send(1, {.bytes = 1, .index = 99});
    if (!seat.poll_until(nothing_waits, "the end of what was cancelled")) return;
  } else {
    seat.barrier();
    const auto last_has_come = [&] { return seat.recorder().frames(0).back().index == 99; };
    // The first of them wait until this rank polls.
    if (!seat.barrier_polling() || !seat.barrier()) return;
    if (!seat.poll_until(last_has_come, "the last frame")) return;
  }
  seat.finish();
}

void unknown_tokens_and_memory_are_ignored(Seat& seat) {
  const Rank peer = 1 - seat.rank();
  if (!seat.greet_everyone()) return;
  std::byte anywhere[64];
  seat.transport().endpoint(peer).cancel(424242);
  seat.transport().endpoint(peer).abandon(anywhere, sizeof anywhere);
  seat.send(peer, {.bytes = 1000});
  seat.await(peer, 2);
  seat.finish();
}

}  // namespace

std::vector<ConformanceCase> pressure_cases() {
  return {
      {"RefusesWhenFullAndRecovers", 2, refuses_when_full_and_recovers},
      {"ReturnsEachTokenOnceAndFromPoll", 2, returns_each_token_once_and_from_poll},
      {"SlowReceiverBlocksNobodyElse", 3, slow_receiver_blocks_nobody_else},
      {"CancelledFramesLeaveTheChannelIntact", 2, cancelled_frames_leave_the_channel_intact},
      {"SaysWhetherAnythingWaitsForPoll", 2, says_whether_anything_waits_for_poll},
      {"AbandonedMemoryIsNotWritten", 2, abandoned_memory_is_not_written},
      {"UnknownTokensAndMemoryAreIgnored", 2, unknown_tokens_and_memory_are_ignored},
  };
}

}  // namespace unisono::test
