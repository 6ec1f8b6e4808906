// Whoever else finds the rendezvous's TCP port: scanners, garbage, silent and many connections.
// None may fail the job, and the log stays short.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <random>
#include <thread>

#include "base/log.h"
#include "rendezvous/arbiter/strangers.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/sockets/control_stream.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::seconds;

// Length and type of a message.
constexpr std::size_t kPrefixBytes = 5;

std::atomic<int> warnings{0};

class StrangersTest : public testing::Test {
 protected:
  void SetUp() override {
    warnings = 0;
    log::set_hook([](log::Level, std::string_view) { ++warnings; });
  }
  void TearDown() override { log::set_hook(nullptr); }

  // A rendezvous of two whose second rank comes only after `nuisance` has run.
  void meet_in_spite_of(const RendezvousPoint& point, const std::function<void()>& nuisance) {
    auto candidates = world_of(point, 2);
    std::vector<Outcome> first, second;
    std::thread waiting([&] { first = meet({candidates[0]}); });
    ASSERT_TRUE(eventually([&] { return connect(point).has_value(); }));
    nuisance();
    second = meet({candidates[1]});
    waiting.join();
    ASSERT_TRUE(first[0].status) << first[0].status.message();
    ASSERT_TRUE(second[0].status) << second[0].status.message();
    second[0].client->leave();
    first[0].client->leave();
  }

  static Result<GuardedFd> connect(const RendezvousPoint& point) {
    if (point.kind == RendezvousPoint::Kind::kAbstract) return connect_unix(point.name);
    return connect_tcp(point.name, point.port, Clock::now() + kPatience);
  }

  // What the arbiter says before it hangs up: the code of its refusal.
  static std::optional<ErrorCode> answer_of(ControlStream* stream) {
    for (;;) {
      if (!wait_ready(stream->fd(), false, Clock::now() + kPatience)) return std::nullopt;
      const bool open = stream->receive();
      const auto message = stream->next();
      if (message && *message && (*message)->type == MessageType::kRefusal) {
        return decode_refusal((*message)->body).code();
      }
      if (!open || !message) return std::nullopt;
    }
  }

  static void say(const GuardedFd& fd, std::string_view bytes) {
    static_cast<void>(!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
};

TEST_F(StrangersTest, PortScannersAreIgnored) {
  const RendezvousPoint point = tcp_point();
  meet_in_spite_of(point, [&] {
    for (int i = 0; i < 50; ++i) static_cast<void>(connect(point).has_value());
  });
  EXPECT_GE(warnings, 1);
  EXPECT_LE(warnings, 20) << "one line each, but not without limit";
}

TEST_F(StrangersTest, GarbageIsRefused) {
  const RendezvousPoint point = tcp_point();
  std::mt19937 random(4);
  meet_in_spite_of(point, [&] {
    for (int i = 0; i < 100; ++i) {
      auto fd = connect(point);
      if (!fd) continue;
      std::string bytes(1 + random() % 600, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      if (i % 3 == 0) bytes = "GET / HTTP/1.1\r\nHost: node\r\n\r\n";
      if (i % 3 == 1) bytes.insert(0, "unisono\n");
      say(*fd, bytes);
    }
  });
}

TEST_F(StrangersTest, WhoHangUpHalfWayArePassedOverHoweverOften) {
  const RendezvousPoint point = tcp_point();
  auto squatter = listen_tcp(point.name, point.port);
  ASSERT_TRUE(squatter.has_value()) << squatter.status().message();
  auto candidates = world_of(point, 2);
  std::vector<Outcome> first, second;
  std::thread early([&] { second = meet({candidates[1]}); });
  for (int visits = 0; visits < 6;) {
    const bool came = wait_ready(squatter->fd.get(), false, Clock::now() + kPatience);
    EXPECT_TRUE(came) << "rank 1 gave up after " << visits << " visits";
    if (!came) break;
    const GuardedFd visitor(
        UniqueFd(::accept4(squatter->fd.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    if (!visitor) continue;
    say(visitor, "unis");
    ++visits;
  }
  squatter->fd.reset();
  first = meet({candidates[0]});
  early.join();
  ASSERT_TRUE(first[0].status) << first[0].status.message();
  ASSERT_TRUE(second[0].status) << second[0].status.message();
  second[0].client->leave();
  first[0].client->leave();
}

TEST_F(StrangersTest, GarbageOfTheSameUserIsRefusedOnTheUnixSocket) {
  const RendezvousPoint point = abstract_point();
  const std::string join = encode(JoinMessage{2, test_member(1)});
  int refused = 0;
  meet_in_spite_of(point, [&] {
    // Whole messages of every shorter body, so that each field is missing or cut once.
    for (std::size_t body = 0; body + kPrefixBytes < join.size(); ++body) {
      auto fd = connect(point);
      ASSERT_TRUE(fd.has_value()) << fd.status().message();
      std::string bytes = join.substr(0, kPrefixBytes + body);
      bytes[0] = static_cast<char>(body + 1);  // the type counts, and this member is small
      say(*fd, bytes);
      ControlStream stream(std::move(*fd));
      const auto answer = answer_of(&stream);
      ASSERT_TRUE(answer.has_value()) << "after " << body << " bytes of a greeting";
      EXPECT_EQ(*answer, ErrorCode::kProtocol);
      ++refused;
    }
  });
  EXPECT_GT(refused, 50);
  EXPECT_GE(warnings, 1);
  EXPECT_LE(warnings, 20) << "one line each, but not without limit";
}

TEST_F(StrangersTest, TwoHundredSilentConnectionsDoNotLockTheRanksOut) {
  const RendezvousPoint point = tcp_point();
  std::vector<GuardedFd> silent;
  meet_in_spite_of(point, [&] {
    for (int i = 0; i < 200; ++i) {
      if (auto fd = connect(point)) silent.push_back(std::move(*fd));
    }
  });
  EXPECT_GE(silent.size(), 150u);
}

// Strangers that fill every place, say `greeting` and no more, and come back when they are sent
// away.
class Flood {
 public:
  Flood(const RendezvousPoint& point, std::function<std::string()> greeting)
      : point_(point), greeting_(std::move(greeting)), thread_([this] { run(); }) {}
  ~Flood() {
    done_ = true;
    thread_.join();
  }
  /// All have been connected once.
  bool is_up() const { return up_; }

 private:
  static constexpr std::size_t kSize = 300;

  static bool has_ended(const GuardedFd& fd) {
    char byte;
    const ssize_t got = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  void run() {
    std::vector<GuardedFd> fds(kSize);
    while (!done_) {
      for (GuardedFd& fd : fds) {
        if (done_) return;
        if (fd && !has_ended(fd)) continue;
        auto connected =
            connect_tcp(point_.name, point_.port, Clock::now() + std::chrono::milliseconds(50));
        if (!connected) continue;
        fd = std::move(*connected);
        const std::string bytes = greeting_();
        static_cast<void>(!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
      }
      up_ = true;
      std::this_thread::yield();
    }
  }

  const RendezvousPoint point_;
  const std::function<std::string()> greeting_;
  std::atomic<bool> done_{false}, up_{false};
  std::thread thread_;
};

class Floods : public StrangersTest {
 protected:
  void meet_in_a_flood_of(std::function<std::string()> greeting) {
    const RendezvousPoint point = tcp_point();
    std::optional<Flood> flood;
    meet_in_spite_of(point, [&] {
      flood.emplace(point, std::move(greeting));
      EXPECT_TRUE(eventually([&] { return flood->is_up(); }));
    });
  }
};

TEST_F(Floods, OfThoseThatBeginAGreetingDoNotLockTheRanksOut) {
  meet_in_a_flood_of([] { return std::string("unisono\n"); });
}

TEST_F(Floods, OfThoseThatGreetDoNotLockTheRanksOut) {
  meet_in_a_flood_of([] {
    HandshakeIdentity identity{kRendezvousJobId, 1, 0, HandshakePurpose::kControl, 0};
    return Handshake(JobKey::random(), Handshake::Role::kInitiator, identity).take_output();
  });
}

TEST_F(StrangersTest, AfterTheRendezvousThePortIsClosed) {
  const RendezvousPoint point = tcp_point();
  auto outcomes = meet(world_of(point, 2));
  ASSERT_TRUE(outcomes[0].status && outcomes[1].status);
  EXPECT_FALSE(connect(point).has_value());
  outcomes[1].client->leave();
  outcomes[0].client->leave();
}

}  // namespace
}  // namespace unisono::rendezvous
