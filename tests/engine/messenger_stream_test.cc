// How a granted message of any length goes out: a bounded number of pieces at each poll, so that
// whoever polls comes back to clocks and failures.
#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/messenger_fixture.h"

namespace unisono::test {
namespace {

constexpr std::size_t kPiecesAllowed = 1024;

// Takes everything at once, as the endpoint of a closed link does.
class EagerEndpoint final : public Endpoint {
 public:
  PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                       std::uint64_t) override {
    if (header.kind != FrameKind::kData) return PostResult::kDone;
    EXPECT_EQ(header.offset, bytes);
    ++pieces;
    bytes += payload.size();
    return PostResult::kDone;
  }
  void cancel(std::uint64_t) override {}
  void abandon(const std::byte*, std::size_t) override {}

  std::size_t pieces = 0;
  std::size_t bytes = 0;
};

class EagerTransport final : public Transport {
 public:
  std::string_view name() const override { return "eager"; }
  EndpointTraits traits() const override { return {}; }
  std::string address() const override { return ""; }
  Status set_peers(std::vector<std::string>) override { return {}; }
  Endpoint& endpoint(Rank) override { return end; }
  bool poll(FrameSink&) override { return false; }
  bool has_unsent() const override { return false; }
  void close(TimePoint, FrameSink&) override {}

  EagerEndpoint end;
};

class Sender final : public MessageOwner {
 public:
  void message_done(std::uint32_t) override { ++done; }
  void message_piece(std::uint32_t, std::size_t, std::span<const std::byte>) override {}
  int done = 0;
};

class MessengerStream : public testing::Test {
 protected:
  MessengerStream() {
    messenger_.set_route(1, transport_);
    messenger_.open(kCommunicator, std::vector<Rank>{0, 1});
  }

  // Nobody reads the bytes.
  void send(std::size_t bytes) {
    const MessageKey key{kCommunicator, FrameClass::kCollective, 0, 1};
    EXPECT_FALSE(messenger_.send(1, key, {}, {&byte_, bytes}, sender_, 0));
    FrameHeader grant;
    grant.kind = FrameKind::kGrant;
    grant.communicator = key.communicator;
    grant.sequence = key.sequence;
    grant.total_bytes = bytes;
    messenger_.received(1, grant);
  }

  Events events_;
  EagerTransport transport_;
  Messenger messenger_{2, events_, 0};
  Sender sender_;
  std::byte byte_{};
};

TEST_F(MessengerStream, APollEndsHoweverLongTheMessage) {
  send(std::size_t{1} << 46);
  for (std::size_t polls = 1; polls <= 3; ++polls) {
    messenger_.poll();
    EXPECT_GE(transport_.end.pieces, polls);
    EXPECT_LE(transport_.end.pieces, polls * kPiecesAllowed);
  }
  EXPECT_TRUE(messenger_.has_unsent());
  EXPECT_EQ(sender_.done, 0);
  messenger_.cancel(sender_);
  EXPECT_FALSE(messenger_.has_unsent());
}

TEST_F(MessengerStream, PollsOneAfterTheOtherSendAllOfIt) {
  const std::size_t bytes = 3 * kPiecesAllowed * kFramePayloadMax + 1;
  send(bytes);
  for (std::size_t polls = 0; messenger_.has_unsent() && polls <= 4 * kPiecesAllowed; ++polls) {
    messenger_.poll();
  }
  EXPECT_EQ(transport_.end.bytes, bytes);
  EXPECT_EQ(sender_.done, 1);
}

}  // namespace
}  // namespace unisono::test
