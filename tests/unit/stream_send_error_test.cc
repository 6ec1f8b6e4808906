// A send that the kernel refuses at once, on one of more streams than are asked one by one: it
// leaves nothing queued, and no event tells of it.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/unit/stream_fixture.h"
#include "transports/tcp/connector.h"

namespace {

// Of this thread: other tests of the program send from several.
thread_local int next_send_error = 0;
thread_local int refused_admissions = 0;

bool admits(const void* data, std::size_t bytes) {
  const unisono::FrameHeader frame = unisono::tcp::link_frame(
      unisono::tcp::kFrameAdmitted, static_cast<std::uint32_t>(unisono::tcp::Admission::kAdmitted));
  return bytes > sizeof frame && std::memcmp(static_cast<const char*>(data) + bytes - sizeof frame,
                                             &frame, sizeof frame) == 0;
}

}  // namespace

/// In place of libc's: fails once with what the test asks for.
extern "C" ssize_t send(int fd, const void* data, std::size_t bytes, int flags) {
  if (refused_admissions > 0 && admits(data, bytes)) {
    --refused_admissions;
    errno = ENOBUFS;
    return -1;
  }
  if (const int error = std::exchange(next_send_error, 0); error != 0) {
    errno = error;
    return -1;
  }
  return ::sendto(fd, data, bytes, flags, nullptr, 0);
}

namespace unisono {
namespace {

using test::frame_of;
using test::Job;
using test::pattern;
using test::RecordingSink;

constexpr int kRanks = 6;

/// Links of rank 0 with all others stand, and a send to rank 3 fails by this error.
struct OneSendFails {
  Job job{kRanks, StreamOptions::Family::kUnix};
  std::vector<std::byte> payload = pattern(100, 3);

  explicit OneSendFails(int error) {
    for (Rank rank = 1; rank < kRanks; ++rank) {
      job.post(0, rank, frame_of(0, 0), {}, 0);
      EXPECT_TRUE(job.until([&] { return job.sinks[rank]->frames.size() == 1; }));
    }
    next_send_error = error;
    job.transports[0]->endpoint(3).post_send(frame_of(1, payload.size()), payload, 1);
    EXPECT_EQ(next_send_error, 0) << "the frame was not sent when it was posted";
  }
};

TEST(StreamSendError, OneThatStaysIsReportedThoughNothingIsQueued) {
  OneSendFails refused(EPERM);
  const RecordingSink& sink = *refused.job.sinks[0];
  ASSERT_TRUE(refused.job.until([&] { return !sink.closed_causes.empty(); }));
  ASSERT_EQ(sink.closed_causes.count(3), 1U);
  const Status& cause = sink.closed_causes.at(3);
  EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
  EXPECT_EQ(cause.rank(), 3);
  EXPECT_NE(cause.message().find("Operation not permitted"), std::string::npos) << cause.message();
}

TEST(StreamSendError, AShortageOfMemoryPassesAndNothingIsLost) {
  for (const int error : {ENOBUFS, ENOMEM}) {
    OneSendFails refused(error);
    const auto& frames = refused.job.sinks[3]->frames;
    ASSERT_TRUE(refused.job.until([&] { return frames.size() == 2; })) << error;
    EXPECT_EQ(frames.back().payload, refused.payload);
    EXPECT_TRUE(refused.job.sinks[0]->closed_causes.empty());
  }
}

// As many as wrong keys end the dial.
TEST(StreamSendError, OfAnAdmissionSaysNothingOfTheKey) {
  Job job(2, StreamOptions::Family::kTcp);
  refused_admissions = 3;
  job.post(0, 1, frame_of(0, 0), {}, 0);
  ASSERT_TRUE(job.until(
      [&] { return !job.sinks[1]->frames.empty() || !job.sinks[0]->closed_causes.empty(); }));
  EXPECT_EQ(refused_admissions, 0);
  EXPECT_TRUE(job.sinks[0]->closed_causes.empty());
}

}  // namespace
}  // namespace unisono
