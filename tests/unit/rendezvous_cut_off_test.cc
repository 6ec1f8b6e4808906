// A rank whose connection to the arbiter passes nothing on, though both live and others hear the
// arbiter: all name that rank, itself as well, and nobody takes the arbiter's place.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using testing::HasSubstr;

/// Passes one connection to an arbiter on until it is told to hold everything back.
class Wire {
 public:
  explicit Wire(std::uint16_t arbiter)
      : listener_(std::move(*listen_tcp("127.0.0.1", 0))), thread_([this, arbiter] {
          if (!wait_ready(listener_.fd.get(), false, Clock::now() + kPatience)) return;
          const UniqueFd rank(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
          GuardedFd other;
          if (!eventually([&] {
                auto fd = connect_tcp("127.0.0.1", arbiter, Clock::now() + kPatience);
                if (fd) other = std::move(*fd);
                return fd.has_value();
              })) {
            return;
          }
          while (!ended_) {
            if (!held_) {
              pass(rank.get(), other.get());
              pass(other.get(), rank.get());
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  ~Wire() {
    ended_ = true;
    thread_.join();
  }
  std::uint16_t port() const { return listener_.port; }
  void hold() { held_ = true; }

 private:
  static void pass(int from, int to) {
    char bytes[4096];
    const ssize_t count = ::recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0)
      static_cast<void>(!::send(to, bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL));
  }

  Listener listener_;
  std::atomic<bool> held_{false}, ended_{false};
  std::thread thread_;
};

// The others are more, and may go on with an arbiter of their own.
TEST(ACutOffArbiter, SaysSoAndNamesNobodyElse) {
  RendezvousPoint point = tcp_point();
  point.silence = std::chrono::milliseconds(1500);
  Wire wires[]{Wire(point.port), Wire(point.port)};
  auto candidates = world_of(point, 3);
  for (const std::size_t rank : {1u, 2u}) {
    candidates[rank].point.port = wires[rank - 1].port();
    candidates[rank].member.host += std::to_string(rank);
  }
  auto outcomes = meet(candidates);
  expect_one_world(outcomes);
  for (Wire& wire : wires) wire.hold();
  const FailureDecision decision = await_decision(outcomes[0].client.get());
  EXPECT_EQ(decision.code, ErrorCode::kPartitioned);
  EXPECT_EQ(decision.failed_rank, 0) << decision.message;
  EXPECT_THAT(decision.message, HasSubstr("rank 0 is cut off: it hears rank 0, 1 of 3"));
  EXPECT_THAT(decision.message, HasSubstr("and not ranks 1 and 2"));
  leave_all(&outcomes);
}

TEST(ACutOffRank, IsNamedByAllAndByItself) {
  RendezvousPoint point = tcp_point();
  point.silence = std::chrono::milliseconds(1500);
  Wire wire(point.port);
  auto candidates = world_of(point, 3);
  candidates[2].point.port = wire.port();
  auto outcomes = meet(candidates);
  expect_one_world(outcomes);
  wire.hold();
  for (const Rank rank : {0, 1, 2}) {
    const FailureDecision decision =
        await_decision(outcomes[static_cast<std::size_t>(rank)].client.get());
    EXPECT_EQ(decision.code, rank == 2 ? ErrorCode::kPartitioned : ErrorCode::kRankFailed);
    EXPECT_EQ(decision.failed_rank, 2) << decision.message;
    EXPECT_THAT(decision.message, HasSubstr(rank == 2 ? "is cut off" : "is silent"));
  }
  // The others still have their arbiter.
  outcomes[0].client->report_failure({ErrorCode::kAborted, -1, 7, 0, "served"});
  EXPECT_EQ(await_decision(outcomes[1].client.get()).message, "served");
  leave_all(&outcomes);
}

}  // namespace
}  // namespace unisono::rendezvous
