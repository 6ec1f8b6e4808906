// One rank's connector by itself: whom it dials knows the key and answers what it likes, or
// nothing.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "base/unproven_peers.h"
#include "tests/unit/stream_fixture.h"
#include "transports/tcp/connector.h"
#include "transports/tcp/dial.h"

namespace unisono::tcp {
namespace {

using test::options_for;
using testing::HasSubstr;
using Family = StreamOptions::Family;

constexpr Duration kPatience = std::chrono::seconds(30);

class Events final : public ConnectorEvents {
 public:
  std::optional<Status> failure;
  std::vector<Rank> connections;

  Admission admit(Rank, std::uint16_t) override { return Admission::kAdmitted; }
  void connected(Connection connection) override { connections.push_back(connection.peer); }
  void dial_failed(Rank, std::uint16_t, const Status& cause) override { failure = cause; }
  void accept_failed(const Status& cause) override { failure = cause; }
};

/// Listens as rank 1 would, and is told where.
struct Listening {
  UniqueFd fd;
  Target target;

  Listening() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const Target any = *tcp_target("127.0.0.1", 0);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any.address), any.bytes), 0);
    EXPECT_EQ(::listen(fd.get(), 8), 0);
    target.bytes = sizeof target.address;
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&target.address), &target.bytes);
  }
  UniqueFd accept() const { return UniqueFd(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
};

struct Dialling {
  StreamOptions options = options_for(0, 2, Family::kTcp);
  Events events;
  std::unique_ptr<Connector> connector = std::move(*Connector::open(options, events));

  template <typename Holds>
  bool until(Holds holds) {
    for (const TimePoint deadline = Clock::now() + kPatience; !holds();) {
      if (Clock::now() > deadline) return false;
      connector->poll();
    }
    return true;
  }
};

/// Rank 0 dials rank 1, which lets it in by this frame.
Events dialled(const FrameHeader& answer) {
  Dialling dialling;
  const Listening peer;
  dialling.connector->dial(1, 0, {peer.target});
  UniqueFd fd;
  EXPECT_TRUE(dialling.until([&] { return static_cast<bool>(fd = peer.accept()); }));
  HandshakeIdentity identity;
  identity.job_id = dialling.options.job_id;
  identity.self = 1;
  Handshake handshake(dialling.options.key, Handshake::Role::kAcceptor, identity);
  EXPECT_TRUE(dialling.until([&] {
    std::byte buffer[512];
    const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got <= 0) return false;
    std::span<const std::byte> view(buffer, static_cast<std::size_t>(got));
    EXPECT_TRUE(handshake.consume(&view).ok());
    std::string output = handshake.take_output();
    if (handshake.done()) output.append(reinterpret_cast<const char*>(&answer), sizeof answer);
    EXPECT_TRUE(output.empty() || send_now(fd.get(), output.data(), output.size()));
    return handshake.done();
  }));
  EXPECT_TRUE(dialling.until(
      [&] { return dialling.events.failure || !dialling.events.connections.empty(); }));
  return std::move(dialling.events);
}

TEST(Dial, AnAdmittedConnectionIsHandedOut) {
  EXPECT_THAT(dialled(link_frame(kFrameAdmitted, 0)).connections, testing::ElementsAre(1));
}

TEST(Dial, AnUnknownFirstFrameIsAProtocolError) {
  FrameHeader with_payload = link_frame(kFrameAdmitted, 0);
  with_payload.payload_bytes = 1;
  FrameHeader refused_with_payload = link_frame(kFrameRefused, 3);
  refused_with_payload.payload_bytes = 1;
  for (const FrameHeader& answer :
       {with_payload, refused_with_payload, link_frame(kFrameGoodbye, 1),
        link_frame(FrameKind::kEager, 0)}) {
    const Events events = dialled(answer);
    ASSERT_TRUE(events.failure.has_value());
    EXPECT_EQ(events.failure->code(), ErrorCode::kProtocol);
    EXPECT_EQ(events.failure->rank(), 1);
    EXPECT_TRUE(events.connections.empty());
  }
}

TEST(Dial, ARefusalSaysWhy) {
  const auto why = [](std::uint32_t admission) {
    const Events events = dialled(link_frame(kFrameRefused, admission));
    return events.failure ? events.failure->message() : "none";
  };
  EXPECT_THAT(why(static_cast<std::uint32_t>(Admission::kEnded)), HasSubstr("has ended its link"));
  EXPECT_THAT(why(99), HasSubstr("takes no stream 0"));
}

TEST(Dial, WhoLeavesGivesUpAtAnAddressThatRefuses) {
  Dialling dialling;
  const Target gone = Listening().target;
  dialling.connector->dial(1, 0, {gone});
  dialling.connector->leave();
  ASSERT_TRUE(dialling.until([&] { return dialling.events.failure.has_value(); }));
  EXPECT_EQ(dialling.events.failure->code(), ErrorCode::kRankLeft);
}

/// Rank 0 dials rank 1 at these addresses, by a dial whose time the test tells.
struct Dialled {
  StreamOptions options = options_for(0, 2, Family::kTcp);
  boost::asio::io_context context;
  std::optional<Status> given_up;
  std::shared_ptr<Dial> dial;

  explicit Dialled(std::vector<Target> targets)
      : dial(std::make_shared<Dial>(
            context, options, 1, 0, std::move(targets),
            [this](const Result<Connection>& made) { given_up = made.status(); })) {
    dial->start();
  }
  ~Dialled() {
    dial->cancel();
    context.restart();
    context.poll();
  }
  template <typename Holds>
  bool until(Holds holds) {
    for (const TimePoint deadline = Clock::now() + kPatience; !holds();) {
      if (Clock::now() > deadline) return false;
      context.restart();
      context.poll();
    }
    return true;
  }
  /// Its attempt has come to this address.
  UniqueFd comes_to(const Listening& address) {
    UniqueFd came;
    EXPECT_TRUE(until([&] {
      came = address.accept();
      return came || given_up;
    }));
    EXPECT_TRUE(until([&] { return dial->connected() || given_up; }));
    return came;
  }
};

void answer_garbage(const UniqueFd& caller) {
  const std::string garbage(128, 'x');
  EXPECT_TRUE(send_now(caller.get(), garbage.data(), garbage.size()));
}

TEST(Dial, AMuteAddressIsGivenUpForTheNext) {
  const Listening mute, next;
  Dialled rank({mute.target, next.target});
  const UniqueFd held = rank.comes_to(mute);  // whoever is hung up on goes on at once
  rank.dial->tick(std::chrono::seconds(4));
  EXPECT_TRUE(rank.dial->connected());
  rank.dial->tick(std::chrono::seconds(4));
  rank.comes_to(next);
}

// Who computes is mute. What another host answers at one of its addresses is no word of its own.
TEST(Dial, AnAddressThatDeniesDoesNotSpeakForOneThatIsMute) {
  const test::LogRecorder log;
  const Listening mute, stranger;
  Dialled rank({mute.target, stranger.target});
  std::vector<UniqueFd> held;
  for (int round = 0; round < 8; ++round) {
    held.push_back(rank.comes_to(mute));
    ASSERT_FALSE(rank.given_up.has_value()) << round << ": " << rank.given_up->message();
    rank.dial->tick(std::chrono::seconds(6));
    held.push_back(rank.comes_to(stranger));
    answer_garbage(held.back());
  }
}

TEST(Dial, IsGivenUpWhenEveryAddressDenies) {
  const Listening one, other;
  Dialled rank({one.target, other.target});
  std::vector<UniqueFd> held;
  for (int round = 0; round < 3; ++round) {
    for (const Listening* address : {&one, &other}) {
      held.push_back(rank.comes_to(*address));
      EXPECT_FALSE(rank.given_up.has_value()) << round;
      answer_garbage(held.back());
    }
  }
  ASSERT_TRUE(rank.until([&] { return rank.given_up.has_value(); }));
  EXPECT_EQ(rank.given_up->rank(), 1);
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(Connector, HearsABoundedNumberOfStrangersAtATime) {
  const test::LogRecorder log;
  Dialling listening;
  const auto targets = parse_address(listening.connector->address());
  ASSERT_TRUE(targets.has_value());
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < 2 * kStrangersMax; ++i) {
    const Target& target = targets->front();
    silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(silent.back().get(), reinterpret_cast<const sockaddr*>(&target.address),
                        target.bytes),
              0);
  }
  const std::size_t before = descriptors();
  for (int i = 0; i < 2000; ++i) listening.connector->poll();
  EXPECT_GE(descriptors(), before + kStrangersMax);
  EXPECT_LE(descriptors(), before + kStrangersMax + 1);
}

}  // namespace
}  // namespace unisono::tcp
