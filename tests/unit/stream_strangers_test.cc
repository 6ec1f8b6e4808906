// Who is not of the job: garbage on the listening port, silent strangers by the hundred, greetings
// that stop half-way, peers that break the protocol once they are in.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/handshake.h"
#include "base/unique_fd.h"
#include "tests/unit/stream_fixture.h"
#include "transports/tcp/link_frames.h"
#include "transports/tcp/peer_address.h"
#include "transports/tcp/peer_link.h"

namespace unisono {
namespace {

using test::frame_of;
using test::Job;
using test::LogRecorder;
using test::options_for;
using test::pattern;
using test::RecordingSink;
using Family = StreamOptions::Family;

UniqueFd connect_to(const std::string& address) {
  const auto targets = tcp::parse_address(address);
  EXPECT_TRUE(targets.has_value());
  const tcp::Target& target = targets->front();
  UniqueFd fd(::socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target.address), target.bytes),
            0);
  return fd;
}

void say(const UniqueFd& fd, std::string_view bytes) {
  EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

class Strangers : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Families, Strangers, testing::Values(Family::kTcp, Family::kUnix),
                         [](const auto& info) {
                           return info.param == Family::kTcp ? "Tcp" : "Unix";
                         });

void expect_job_works(Job* job) {
  job->post(1, 0, frame_of(42, 0), {}, 0);
  EXPECT_TRUE(job->until([&] { return job->sinks[0]->frames.size() == 1; }));
  EXPECT_TRUE(job->sinks[0]->closed_causes.empty());
}

TEST_P(Strangers, GarbageIsRefusedWithALineAndTheJobGoesOn) {
  const LogRecorder log;
  Job job(2, GetParam());
  std::vector<UniqueFd> fds;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(400, '\0'), std::string("u"),
        std::string("unisono\n") + std::string(400, '\xff')}) {
    fds.push_back(connect_to(job.transports[0]->address()));
    say(fds.back(), bytes);
  }
  expect_job_works(&job);
  EXPECT_TRUE(job.until([&] { return LogRecorder::lines().size() >= 3; }));
  EXPECT_TRUE(LogRecorder::has("does not speak the unisono protocol"));
}

TEST_P(Strangers, TwoHundredSilentOnesDoNotKeepARankOut) {
  const LogRecorder log;
  Job job(2, GetParam());
  std::vector<UniqueFd> fds;
  for (int i = 0; i < 200; ++i) fds.push_back(connect_to(job.transports[0]->address()));
  expect_job_works(&job);
  EXPECT_LT(LogRecorder::lines().size(), 40u) << "the log is not theirs to fill";
}

// Strangers that fill every place, say `greeting` and no more, and come back when they are sent
// away.
class Flood {
 public:
  Flood(std::string address, std::function<std::string()> greeting)
      : address_(std::move(address)), greeting_(std::move(greeting)) {
    for (UniqueFd& fd : fds_) renew(&fd);
  }
  void come_back() {
    for (UniqueFd& fd : fds_) {
      char byte;
      const ssize_t got = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) renew(&fd);
    }
  }

 private:
  // More than their two seconds each would let in within the time that the test waits.
  static constexpr std::size_t kSize = 600;

  void renew(UniqueFd* fd) {
    *fd = connect_to(address_);
    const std::string bytes = greeting_();
    static_cast<void>(!::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }

  const std::string address_;
  const std::function<std::string()> greeting_;
  std::vector<UniqueFd> fds_ = std::vector<UniqueFd>(kSize);
};

void expect_job_works_in_a_flood_of(Family family, std::function<std::string()> greeting) {
  const LogRecorder log;
  Job job(2, family);
  Flood flood(job.transports[0]->address(), std::move(greeting));
  job.post(1, 0, frame_of(42, 0), {}, 0);
  EXPECT_TRUE(job.until([&] {
    flood.come_back();
    return job.sinks[0]->frames.size() == 1;
  }));
  EXPECT_TRUE(job.sinks[0]->closed_causes.empty());
  EXPECT_LT(LogRecorder::lines().size(), 40u) << "the log is not theirs to fill";
}

TEST_P(Strangers, AFloodOfThoseThatBeginAGreetingDoesNotKeepARankOut) {
  expect_job_works_in_a_flood_of(GetParam(), [] { return std::string("unisono\n"); });
}

TEST_P(Strangers, AFloodOfThoseThatGreetDoesNotKeepARankOut) {
  HandshakeIdentity identity;
  identity.job_id = options_for(0, 2, GetParam()).job_id;
  identity.self = 1;
  identity.peer = 0;
  expect_job_works_in_a_flood_of(GetParam(), [&] {
    return Handshake(JobKey::random(), Handshake::Role::kInitiator, identity).take_output();
  });
}

TEST_P(Strangers, WhoStopsHalfWayIsDroppedAfterHisTime) {
  const LogRecorder log;
  Job job(2, GetParam());
  const UniqueFd fd = connect_to(job.transports[0]->address());
  say(fd, "uniso");
  ASSERT_TRUE(job.until([&] { return LogRecorder::has("did not authenticate"); }));
  char byte;
  EXPECT_EQ(::recv(fd.get(), &byte, 1, 0), 0);
  expect_job_works(&job);
}

// A peer that knows the key and goes wrong afterwards.
class Intruder {
 public:
  Intruder(Job* job, Rank self, std::uint16_t stream = 0) : job_(job) {
    fd_ = connect_to(job->transports[0]->address());
    const auto options = options_for(0, 2, job->family);
    HandshakeIdentity identity;
    identity.job_id = options.job_id;
    identity.self = self;
    identity.peer = 0;
    identity.stream = stream;
    Handshake handshake(options.key, Handshake::Role::kInitiator, identity);
    say(fd_, handshake.take_output());
    const bool done = job->until([&] {
      std::byte buffer[512];
      const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got <= 0) return false;
      std::span<const std::byte> view(buffer, static_cast<std::size_t>(got));
      EXPECT_TRUE(handshake.consume(&view).ok());
      rest_.append(reinterpret_cast<const char*>(view.data()), view.size());
      const std::string output = handshake.take_output();
      if (!output.empty()) say(fd_, output);
      return handshake.done() && rest_.size() >= sizeof(FrameHeader);
    });
    EXPECT_TRUE(done);
  }
  FrameHeader answer() const {
    FrameHeader header;
    std::memcpy(&header, rest_.data(), sizeof header);
    return header;
  }
  void send(const FrameHeader& header) {
    say(fd_, {reinterpret_cast<const char*>(&header), sizeof header});
  }
  Status decision() {
    EXPECT_TRUE(job_->until([&] { return job_->sinks[0]->closed_causes.count(1) == 1; }));
    return job_->sinks[0]->closed_causes[1];
  }

 private:
  Job* job_;
  UniqueFd fd_;
  std::string rest_;
};

TEST_P(Strangers, AHostileLengthEndsTheLinkAsAProtocolError) {
  Job job(2, GetParam());
  Intruder peer(&job, 1);
  EXPECT_EQ(peer.answer().kind, tcp::kFrameAdmitted);
  auto header = frame_of(0, 0);
  header.payload_bytes = kFramePayloadMax + 1;
  peer.send(header);
  const Status decision = peer.decision();
  EXPECT_EQ(decision.code(), ErrorCode::kProtocol);
  EXPECT_EQ(decision.rank(), 1);
  EXPECT_NE(decision.message().find("262145"), std::string::npos) << decision.message();
}

// Two streams could otherwise fill the memory of one message, the slower one when it was given
// back.
TEST_P(Strangers, AMessageOnAStreamForDataEndsTheLinkAsAProtocolError) {
  Job job(2, GetParam());
  Intruder first(&job, 1), second(&job, 1, 1);
  ASSERT_EQ(second.answer().kind, tcp::kFrameAdmitted);
  second.send(frame_of(1, 0, FrameKind::kData));
  first.send(frame_of(2, 0));
  ASSERT_TRUE(job.until([&] { return job.sinks[0]->frames.size() == 2; }));
  second.send(frame_of(3, 0));
  const Status decision = second.decision();
  EXPECT_EQ(decision.code(), ErrorCode::kProtocol);
  EXPECT_EQ(decision.rank(), 1);
  EXPECT_NE(decision.message().find("only pieces of granted messages"), std::string::npos)
      << decision.message();
  EXPECT_EQ(job.sinks[0]->frames.size(), 2u);
}

TEST_P(Strangers, ACutFrameIsADeathAndNoGoodbye) {
  Job job(2, GetParam());
  {
    Intruder peer(&job, 1);
    peer.send(frame_of(0, 1000));
  }
  EXPECT_TRUE(job.until([&] { return job.sinks[0]->closed_causes.count(1) == 1; }));
  EXPECT_EQ(job.sinks[0]->closed_causes[1].code(), ErrorCode::kRankFailed);
  EXPECT_TRUE(job.sinks[0]->frames.empty());
}

TEST_P(Strangers, ASecondConnectionOfTheSameRankIsRefused) {
  Job job(2, GetParam());
  Intruder first(&job, 1);
  Intruder second(&job, 1);
  EXPECT_EQ(second.answer().kind, tcp::kFrameRefused);
  EXPECT_EQ(second.answer().index, static_cast<std::uint32_t>(tcp::Admission::kTaken));
  first.send(frame_of(9, 0));
  EXPECT_TRUE(job.until([&] { return job.sinks[0]->frames.size() == 1; }));
}

TEST_P(Strangers, RanksAndStreamsThatDoNotExistAreRefused) {
  Job job(2, GetParam());
  Intruder outside(&job, 2);
  EXPECT_EQ(outside.answer().kind, tcp::kFrameRefused);
  Intruder early(&job, 1, 3);
  EXPECT_EQ(early.answer().kind, tcp::kFrameRefused);
  std::vector<std::unique_ptr<Intruder>> streams;
  for (std::uint16_t stream = 0; stream <= kStreamsMax; ++stream) {
    streams.push_back(std::make_unique<Intruder>(&job, 1, stream));
    EXPECT_EQ(streams.back()->answer().kind,
              stream < kStreamsMax ? tcp::kFrameAdmitted : tcp::kFrameRefused);
  }
}

}  // namespace
}  // namespace unisono
