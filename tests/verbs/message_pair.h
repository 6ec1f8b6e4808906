// Two ranks over a fake network, and messages of many frames from one to the other, out of and into
// memory that the test chooses. Used by the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/verbs/transport_fixture.h"

namespace unisono::verbs::test {

/// Takes the pieces of one message into `target`, and says when it is whole.
class Taker final : public FrameSink {
 public:
  void expect(std::byte* target, std::size_t bytes) {
    target_ = target;
    left_ = bytes;
  }
  bool is_whole() const { return left_ == 0; }
  bool is_idle() const { return lent_ == 0; }
  void lend() { ++lent_; }

  Placement place(Rank, const FrameHeader& header) override {
    return {Placement::Kind::kInto, target_ + header.offset};
  }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {
    ADD_FAILURE() << "a piece was to go into its place";
  }
  void received(Rank, const FrameHeader& header) override { left_ -= header.payload_bytes; }
  void sent(Rank, std::uint64_t) override { --lent_; }
  void closed(Rank, const Status& cause) override { ADD_FAILURE() << cause.message(); }

 private:
  std::byte* target_ = nullptr;
  std::size_t left_ = 0;
  int lent_ = 0;
};

/// Two ranks; messages go from 0 to 1.
class Pair {
 public:
  explicit Pair(WorldShape shape = {.ranks = 2, .ports = 2}) : world(std::move(shape)) {
    EXPECT_TRUE(world.greet());
  }

  void turn() {
    for (Rank rank : {0, 1}) world.transport(rank).poll(takers[rank]);
  }
  template <typename Done>
  bool pump_until(const Done& done) {
    const TimePoint deadline = Clock::now() + std::chrono::seconds(20);
    while (!done()) {
      turn();
      if (Clock::now() > deadline) return false;
    }
    return true;
  }
  /// Posts all pieces; kPending ones are lent.
  bool post(const std::byte* message, std::size_t bytes) {
    FrameHeader header;
    header.kind = FrameKind::kData;
    header.communicator = 7;
    header.total_bytes = bytes;
    for (header.offset = 0; header.offset < bytes; header.offset += kFramePayloadMax) {
      const std::size_t piece = std::min(kFramePayloadMax, bytes - header.offset);
      header.payload_bytes = static_cast<std::uint32_t>(piece);
      PostResult result = PostResult::kFull;
      const auto taken = [&] {
        result = world.transport(0).endpoint(1).post_send(header, {message + header.offset, piece},
                                                          kToken);
        return result != PostResult::kFull;
      };
      if (!pump_until(taken)) return false;
      if (result == PostResult::kPending) takers[0].lend();
    }
    return true;
  }
  bool carry(const std::byte* from, std::byte* to, std::size_t bytes) {
    takers[1].expect(to, bytes);
    return post(from, bytes) &&
           pump_until([&] { return takers[1].is_whole() && takers[0].is_idle(); });
  }

  static constexpr std::uint64_t kToken = 77;
  World world;
  Taker takers[2];
};

}  // namespace unisono::verbs::test
