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
#include "transports/tcp/dial_watch.h"

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

StreamOptions options_with(Duration patience) {
  StreamOptions options = options_for(0, 2, Family::kTcp);
  options.unacknowledged_max = patience;
  return options;
}

/// Rank 0 dials rank 1 at these addresses, by a dial whose time the test tells.
struct Dialled {
  StreamOptions options;
  boost::asio::io_context context;
  std::optional<Status> given_up;
  std::shared_ptr<Dial> dial;

  explicit Dialled(std::vector<Target> targets,
                   Duration patience = StreamOptions().unacknowledged_max)
      : options(options_with(patience)),
        dial(std::make_shared<Dial>(
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
      if (!given_up) dial->tick(Duration{});
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

// ---- A peer that cannot be reached ---------------------------------------------------------

/// An address that swallows what comes, as a network that is down does: its queue is full.
struct Swallowing {
  Listening address;
  std::vector<UniqueFd> queued;

  Swallowing() {
    EXPECT_EQ(::listen(address.fd.get(), 0), 0);
    for (int i = 0; i < 2; ++i) {
      queued.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      const Target& to = address.target;
      ::connect(queued.back().get(), reinterpret_cast<const sockaddr*>(&to.address), to.bytes);
    }
  }
};

constexpr std::chrono::milliseconds kShortPatience{300};

/// Nobody listens there.
Target nowhere() { return Listening().target; }

TEST(Dial, AnAddressThatSwallowsEverythingIsABrokenLink) {
  const Swallowing peer;
  Dialled rank({peer.address.target}, kShortPatience);
  ASSERT_TRUE(rank.until([&] { return rank.given_up.has_value(); }));
  EXPECT_EQ(rank.given_up->code(), ErrorCode::kRankFailed);
  EXPECT_EQ(rank.given_up->rank(), 1);
  EXPECT_EQ(rank.given_up->message(),
            "cannot connect to rank 1 at " + to_text(peer.address.target) + ": no answer");
}

TEST(Dial, SoAreAddressesThatRefuseOrSwallow) {
  const Swallowing peer;
  const Target refusing = nowhere();
  Dialled rank({refusing, peer.address.target}, kShortPatience);
  ASSERT_TRUE(rank.until([&] { return rank.given_up.has_value(); }));
  EXPECT_EQ(rank.given_up->code(), ErrorCode::kRankFailed);
  EXPECT_THAT(rank.given_up->message(),
              testing::AllOf(HasSubstr("cannot connect to rank 1 at " + to_text(refusing)),
                             HasSubstr("nor at 1 more"), HasSubstr("Connection refused")));
}

TEST(Dial, OneAddressThatLetsInIsEnough) {
  const Swallowing swallowing;
  const Listening stopped;  // as the kernel does for a process that is
  Dialled rank({swallowing.address.target, nowhere(), stopped.target}, kShortPatience);
  const UniqueFd held = rank.comes_to(stopped);
  // Its kernel is asked for a sign meanwhile.
  const TimePoint end = Clock::now() + 8 * kShortPatience;
  ASSERT_TRUE(rank.until([&] { return Clock::now() > end; }));
  EXPECT_FALSE(rank.given_up.has_value()) << rank.given_up->message();
}

TEST(Dial, WithoutPatienceIsNeverGivenUp) {
  Dialled rank({nowhere()}, {});
  const TimePoint end = Clock::now() + 2 * kShortPatience;
  ASSERT_TRUE(rank.until([&] { return Clock::now() > end; }));
  EXPECT_FALSE(rank.given_up.has_value()) << rank.given_up->message();
}

// The watch's time is the test's.
using std::chrono::milliseconds;
constexpr milliseconds kPatienceOfWatch{3000};

/// Looks every 10 ms, and begins a round each `every`; how long it took until it was over, or -1 if
/// that took longer than `at_most`.
milliseconds over_after(DialWatch* watch, TimePoint start, milliseconds every, milliseconds at_most,
                        bool refused = false) {
  constexpr milliseconds kLook{10};
  milliseconds next{0};
  for (milliseconds passed{0}; passed <= at_most; passed += kLook) {
    const TimePoint now = start + passed;
    watch->look(now);
    if (passed < next) continue;
    if (passed > milliseconds{0} && watch->is_over(now)) return passed;
    watch->begin_round(now);
    if (refused) watch->note_refusal();
    next += every;
  }
  return milliseconds(-1);
}

TEST(DialWatch, IsOverAfterThePatience) {
  DialWatch watch(kPatienceOfWatch, 1);
  EXPECT_EQ(over_after(&watch, TimePoint(), milliseconds(100), milliseconds(9000)),
            kPatienceOfWatch);
}

TEST(DialWatch, WantsAnAttemptInItsLastThird) {
  DialWatch watch(kPatienceOfWatch, 1);
  EXPECT_EQ(over_after(&watch, TimePoint(), milliseconds(1600), milliseconds(9000)),
            milliseconds(4800));
}

TEST(DialWatch, BeginsAnewAfterAPauseInLooking) {
  DialWatch watch(kPatienceOfWatch, 1);
  const TimePoint start;
  EXPECT_EQ(over_after(&watch, start, milliseconds(100), milliseconds(2900)), milliseconds(-1));
  const TimePoint resumed = start + std::chrono::minutes(10);
  EXPECT_EQ(over_after(&watch, resumed, milliseconds(100), milliseconds(9000)), kPatienceOfWatch);
}

TEST(DialWatch, GivesARankThatLeavesTimeToSaySo) {
  DialWatch watch(milliseconds(500), 1);
  EXPECT_EQ(over_after(&watch, TimePoint(), milliseconds(100), milliseconds(9000), true),
            milliseconds(2500));
}

TEST(DialWatch, GivesEachOfManyAddressesItsTurn) {
  EXPECT_EQ(DialWatch(kPatienceOfWatch, 1).turn(), kPatienceOfWatch / 3);
  EXPECT_EQ(DialWatch(kPatienceOfWatch, 100).turn(), milliseconds(500));
  EXPECT_EQ(DialWatch({}, 2).turn(), Duration::max());
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
