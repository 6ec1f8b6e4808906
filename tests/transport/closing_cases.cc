// Claims about the end: goodbye, draining, deadlines, ranks that go without a word.
#include <gtest/gtest.h>

#include "tests/transport/cases.h"

namespace unisono::test {
namespace {

bool await_closed(Seat& seat, Rank peer) {
  return seat.poll_until([&] { return seat.recorder().closed_cause(peer).has_value(); },
                         "the end of the link");
}

void says_goodbye_after_all_data(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    // Fits the smallest ring: nobody reads yet.
    for (int sent = 0; sent < 40; ++sent) {
      if (!seat.send(1, {.bytes = 8})) return;
    }
    seat.close();
    seat.barrier();
  } else {
    // Reads nothing before rank 0 has gone.
    seat.barrier();
    if (!await_closed(seat, 0)) return;
    EXPECT_EQ(seat.recorder().count(0), 41u);
    EXPECT_TRUE(seat.recorder().closed_cause(0)->ok())
        << seat.recorder().closed_cause(0)->message();
    // closed() a second time would be noticed by the recorder.
    for (int poll = 0; poll < 100; ++poll) seat.poll();
    seat.close();
  }
}

void drops_posts_to_a_closed_peer(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    seat.close();
  } else {
    if (!await_closed(seat, 0)) return;
    for (int sent = 0; sent < 300; ++sent) {
      EXPECT_EQ(seat.try_send(0, {.bytes = 60000}), PostResult::kDone);
    }
    for (int poll = 0; poll < 100; ++poll) seat.poll();
    seat.close();
  }
  EXPECT_EQ(seat.try_send(1 - seat.rank(), {.bytes = 10}), PostResult::kDone)
      << "after close() posts are dropped too";
  EXPECT_FALSE(seat.poll());
  seat.close();
}

void drains_what_is_queued_when_closing(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    const std::uint64_t taken = seat.send_until_full(1, {.bytes = kFramePayloadMax});
    seat.barrier();
    seat.close();
    EXPECT_GT(taken, 0u);
  } else {
    seat.barrier();
    if (!await_closed(seat, 0)) return;
    EXPECT_TRUE(seat.recorder().closed_cause(0)->ok())
        << seat.recorder().closed_cause(0)->message();
    const auto& frames = seat.recorder().frames(0);
    EXPECT_EQ(frames.size(), frames.back().sequence + 1);
    EXPECT_GT(frames.size(), 1u);
    seat.close();
  }
}

void both_sides_may_close_with_full_channels(Seat& seat) {
  const Rank peer = 1 - seat.rank();
  if (!seat.greet_everyone()) return;
  seat.send_until_full(peer, {.bytes = kFramePayloadMax});
  seat.barrier();
  seat.close();
  // Whoever drained first has gone; nobody waits for a rank that has left.
  EXPECT_FALSE(seat.poll());
}

void close_gives_up_at_its_deadline(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    seat.send_until_full(1, {.bytes = kFramePayloadMax});
    EXPECT_GT(seat.posted(1), 1u);
    seat.tell(seat.posted(1));
    // Nobody reads until it has returned.
    seat.close(std::chrono::milliseconds(50));
    seat.barrier();
    seat.barrier();
  } else {
    seat.barrier();
    if (!await_closed(seat, 0)) return;
    // Either everything fitted, or the loss is told.
    const auto& frames = seat.recorder().frames(0);
    const Status cause = *seat.recorder().closed_cause(0);
    EXPECT_EQ(frames.size(), frames.back().sequence + 1);
    EXPECT_LE(frames.size(), seat.told_by(0));
    if (cause.ok()) {
      EXPECT_EQ(frames.size(), seat.told_by(0)) << "frames were lost without a word";
    } else {
      EXPECT_EQ(cause.rank(), 0);
      EXPECT_NE(cause.message().find("rank 0"), std::string::npos) << cause.message();
    }
    seat.barrier();
    seat.close();
  }
}

void does_not_wait_for_a_peer_that_was_given_up(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    seat.send_until_full(1, {.bytes = kFramePayloadMax});
    seat.give_up(1);
    EXPECT_FALSE(seat.has_unsent());
    seat.barrier();
    seat.close();
  } else {
    seat.barrier();
    seat.destroy_transport();
  }
}

void names_the_rank_that_goes_without_goodbye(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    seat.destroy_transport();
  } else {
    if (!await_closed(seat, 0)) return;
    const Status cause = *seat.recorder().closed_cause(0);
    EXPECT_EQ(cause.code(), ErrorCode::kRankFailed) << cause.message();
    EXPECT_EQ(cause.rank(), 0);
    EXPECT_NE(cause.message().find("rank 0"), std::string::npos) << cause.message();
    seat.close();
  }
}

void returns_tokens_of_a_peer_that_leaves(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 0) {
    seat.send_until_full(1, {.bytes = kFramePayloadMax});
    seat.barrier();
    if (!await_closed(seat, 1)) return;
    EXPECT_EQ(seat.recorder().tokens_outstanding(), 0u);
    seat.close();
  } else {
    seat.barrier();
    seat.close(std::chrono::milliseconds(0));
  }
}

void others_go_on_when_one_leaves(Seat& seat) {
  if (!seat.greet_everyone()) return;
  if (seat.rank() == 2) return seat.close();
  if (!await_closed(seat, 2)) return;
  EXPECT_TRUE(seat.recorder().closed_cause(2)->ok());
  const Rank peer = 1 - seat.rank();
  for (std::uint64_t round = 0; round < 50; ++round) {
    if (!seat.send(peer, {.bytes = 3000}) || !seat.await(peer, round + 2)) return;
  }
  if (!seat.await_tokens()) return;
  seat.close();
}

void close_without_traffic_is_quiet(Seat& seat) {
  seat.poll();
  seat.barrier();
  seat.close();
  seat.close();
}

}  // namespace

std::vector<ConformanceCase> closing_cases() {
  return {
      {"SaysGoodbyeAfterAllData", 2, says_goodbye_after_all_data},
      {"DropsPostsToAClosedPeer", 2, drops_posts_to_a_closed_peer},
      {"DrainsWhatIsQueuedWhenClosing", 2, drains_what_is_queued_when_closing},
      {"BothSidesMayCloseWithFullChannels", 2, both_sides_may_close_with_full_channels},
      {"CloseGivesUpAtItsDeadline", 2, close_gives_up_at_its_deadline},
      {"DoesNotWaitForAPeerThatWasGivenUp", 2, does_not_wait_for_a_peer_that_was_given_up},
      {"NamesTheRankThatGoesWithoutGoodbye", 2, names_the_rank_that_goes_without_goodbye},
      {"ReturnsTokensOfAPeerThatLeaves", 2, returns_tokens_of_a_peer_that_leaves},
      {"OthersGoOnWhenOneLeaves", 3, others_go_on_when_one_leaves},
      {"CloseWithoutTrafficIsQuiet", 3, close_without_traffic_is_quiet},
  };
}

}  // namespace unisono::test
