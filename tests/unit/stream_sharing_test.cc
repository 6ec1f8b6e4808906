// Several connections to one peer share what is sent there: each takes the next frame when it has
// room, so a slow one delays only what it has taken.
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "tests/unit/stream_fixture.h"

namespace unisono {
namespace {

using test::frame_of;
using test::Job;
using test::pattern;

std::set<int> open_tcp_sockets() {
  std::set<int> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.string().starts_with("socket:")) out.insert(std::stoi(entry.path().filename()));
  }
  return out;
}

std::uint64_t bytes_sent(const std::set<int>& sockets) {
  std::uint64_t sum = 0;
  for (const int fd : sockets) {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) sum += info.tcpi_bytes_sent;
  }
  return sum;
}

/// Rank 0 posts one message of so many frames to rank 1, as many at a time as are taken.
void send_message(Job& job, std::uint64_t sequence, std::size_t frames,
                  const std::vector<std::byte>& payload) {
  for (std::size_t i = 0; i < frames; ++i) {
    FrameHeader header = frame_of(sequence, payload.size(), FrameKind::kData);
    header.offset = i * payload.size();
    header.total_bytes = frames * payload.size();
    job.post(0, 1, header, payload, sequence);
  }
  const auto is_its = [&](const auto& frame) { return frame.header.sequence == sequence; };
  const auto& arrived = job.sinks[1]->frames;
  ASSERT_TRUE(job.until([&] {
    return static_cast<std::size_t>(std::count_if(arrived.begin(), arrived.end(), is_its)) ==
           frames;
  }));
}

/// Two ranks with two connections, both in use.
class StreamSharing : public testing::Test {
 protected:
  void SetUp() override {
    job.post(0, 1, frame_of(0, 0), {}, 0);
    ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; }));
    const std::set<int> first = open_tcp_sockets();
    for (std::uint64_t sequence = 1; bytes_sent(second) < payload.size(); ++sequence) {
      ASSERT_LT(sequence, 100u);
      send_message(job, sequence, 16, payload);
      second = open_tcp_sockets();
      std::erase_if(second, [&](int fd) { return first.contains(fd); });
    }
    job.sinks[0]->sent_tokens.clear();
    job.sinks[1]->frames.clear();
  }

  /// Posts without a poll until no more is taken; the number of frames.
  std::size_t fill(std::uint64_t sequence, std::span<const std::byte> from) {
    std::size_t taken = 0;
    for (PostResult result = PostResult::kPending; result != PostResult::kFull; ++taken) {
      FrameHeader header = frame_of(sequence, from.size(), FrameKind::kData);
      header.offset = taken * from.size();
      header.total_bytes = std::size_t{1} << 30;
      result = job.transports[0]->endpoint(1).post_send(header, from, sequence);
    }
    return taken - 1;
  }

  Job job{2, StreamOptions::Family::kTcp, [](StreamOptions* options) {
            options->streams = 2;
            options->extra_stream_after_bytes = 1 << 20;
          }};
  const std::vector<std::byte> payload = pattern(kFramePayloadMax, 3);
  std::set<int> second;  // both ends are in this process
};

TEST_F(StreamSharing, ASlowConnectionCarriesOnlyWhatItCan) {
  const unsigned int bytes_per_second = 256 << 10;
  for (const int fd : second) {
    ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second,
                           sizeof bytes_per_second),
              0);
  }
  const std::uint64_t before = bytes_sent(second);
  constexpr std::size_t kFrames = 128;
  send_message(job, 1000, kFrames, payload);
  const std::uint64_t carried = bytes_sent(second) - before;
  EXPECT_GT(carried, 0u);
  EXPECT_LT(carried, kFrames * payload.size() / 8);
}

TEST_F(StreamSharing, WithinAHostTakesReno) {
  const UniqueFd any(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::setsockopt(any.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4) != 0) {
    GTEST_SKIP() << "this machine does not allow Reno (net.ipv4.tcp_allowed_congestion_control)";
  }
  int connected = 0;
  for (const int fd : open_tcp_sockets()) {
    char control[16] = "";
    socklen_t bytes = sizeof control;
    sockaddr_storage peer{};
    socklen_t peer_bytes = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0) continue;
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &bytes), 0);
    EXPECT_STREQ(control, "reno");
    ++connected;
  }
  EXPECT_EQ(connected, 4);
}

// Where data may be on its way on each, each has to say that there will be no more.
TEST_F(StreamSharing, TheEndOfACommunicatorIsSaidOnEveryConnection) {
  job.post(0, 1, frame_of(1000, 0, FrameKind::kLeft), {}, 0);
  const auto& arrived = job.sinks[1]->frames;
  ASSERT_TRUE(job.until([&] { return arrived.size() == 2; }));
  for (const auto& frame : arrived) {
    EXPECT_EQ(frame.header.kind, FrameKind::kLeft);
    EXPECT_EQ(frame.header.index, 2U) << "how often it comes";
  }
}

TEST_F(StreamSharing, WhatWaitsIsSentBeforeTheGoodbye) {
  const std::size_t frames = fill(1000, payload);
  std::thread leaving(
      [&] { job.transports[0]->close(Clock::now() + std::chrono::seconds(10), *job.sinks[0]); });
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  while (job.sinks[1]->closed_causes.empty() && Clock::now() < deadline) {
    if (!job.transports[1]->poll(*job.sinks[1])) std::this_thread::yield();
  }
  leaving.join();
  ASSERT_EQ(job.sinks[1]->closed_causes.count(0), 1u);
  EXPECT_TRUE(job.sinks[1]->closed_causes[0].ok()) << job.sinks[1]->closed_causes[0].message();
  EXPECT_EQ(job.sinks[1]->frames.size(), frames);
  EXPECT_EQ(job.sinks[0]->sent_tokens.size(), frames);
}

TEST_F(StreamSharing, ACancelledMessageIsNotReadAnyMore) {
  std::vector<std::byte> mine = payload;
  const std::size_t frames = fill(1000, mine);
  job.transports[0]->endpoint(1).cancel(1000);
  mine.assign(mine.size(), std::byte{0});
  send_message(job, 1001, 8, payload);
  EXPECT_LT(job.sinks[1]->frames.size(), frames);
  for (const auto& frame : job.sinks[1]->frames) EXPECT_EQ(frame.payload, payload);
}

TEST_F(StreamSharing, ALostLinkGivesBackWhatWaits) {
  const std::size_t frames = fill(1000, payload);
  job.transports[1].reset();
  ASSERT_TRUE(job.until([&] { return !job.sinks[0]->closed_causes.empty(); }));
  EXPECT_EQ(job.sinks[0]->closed_causes[1].code(), ErrorCode::kRankFailed);
  EXPECT_EQ(job.sinks[0]->sent_tokens.size(), frames);
}

}  // namespace
}  // namespace unisono
