// The stream transport over real sockets, both families: data, back-pressure, crossing dials,
// leaving, dying.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <thread>

#include "tests/unit/stream_fixture.h"
#include "transports/tcp/peer_address.h"

namespace unisono {
namespace {

using test::frame_of;
using test::Job;
using test::LogRecorder;
using test::options_for;
using test::pattern;
using test::RecordingSink;
using Family = StreamOptions::Family;

class StreamTransport : public testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Families, StreamTransport, testing::Values(Family::kTcp, Family::kUnix),
                         [](const auto& info) {
                           return info.param == Family::kTcp ? "Tcp" : "Unix";
                         });

TEST_P(StreamTransport, CarriesFramesBothWaysInOrder) {
  Job job(2, GetParam());
  const std::size_t sizes[] = {0, 1, 63, 64, 65, 1024, 1025, 4096, 70000, kFramePayloadMax};
  std::vector<std::vector<std::byte>> payloads;
  for (int i = 0; i < 100; ++i) payloads.push_back(pattern(sizes[i % 10], i));
  for (Rank rank : {0, 1}) {
    job.sinks[rank]->choose = [](const FrameHeader& header) {
      return header.sequence % 2 ? Placement::Kind::kInto : Placement::Kind::kDeliver;
    };
  }
  std::size_t pending = 0;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    for (Rank rank : {0, 1}) {
      const auto result = job.post(rank, 1 - rank, frame_of(i, payloads[i].size()), payloads[i], i);
      pending += result == PostResult::kPending;
    }
  }
  ASSERT_TRUE(job.until([&] {
    return job.sinks[0]->frames.size() == 100 && job.sinks[1]->frames.size() == 100 &&
           job.sinks[0]->sent_tokens.size() + job.sinks[1]->sent_tokens.size() == pending;
  }));
  for (Rank rank : {0, 1}) {
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      EXPECT_EQ(job.sinks[rank]->frames[i].header.sequence, i);
      EXPECT_EQ(job.sinks[rank]->frames[i].payload, payloads[i]);
    }
  }
}

TEST_P(StreamTransport, SpreadsDataOverStreamsAndLosesNone) {
  Job job(2, GetParam(), [](StreamOptions* options) {
    options->streams = 4;
    options->extra_stream_after_bytes = 1 << 20;
  });
  const auto payload = pattern(kFramePayloadMax, 9);
  constexpr int kFrames = 150;
  for (int i = 0; i < kFrames; ++i) {
    for (Rank rank : {0, 1}) {
      job.post(rank, 1 - rank, frame_of(i, payload.size(), FrameKind::kData), payload, i);
    }
  }
  ASSERT_TRUE(job.until([&] {
    return job.sinks[0]->frames.size() == kFrames && job.sinks[1]->frames.size() == kFrames;
  }));
  for (const auto& sink : job.sinks) {
    std::vector<int> seen(kFrames);
    for (const auto& frame : sink->frames) {
      ++seen[frame.header.sequence];
      ASSERT_EQ(frame.payload, payload);
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), kFrames);
  }
  job.transports[0]->close(Clock::now() + std::chrono::seconds(5), *job.sinks[0]);
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->closed_causes.count(0) == 1; }));
  EXPECT_TRUE(job.sinks[1]->closed_causes[0].ok()) << job.sinks[1]->closed_causes[0].message();
}

std::size_t open_sockets() {
  std::size_t sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.string().starts_with("socket:")) ++sockets;
  }
  return sockets;
}

/// How many sockets 25 MiB to one peer add to those of its first stream. Both ends are here.
void count_further_sockets(StreamOptions::Family family, int streams, std::size_t expected) {
  Job job(2, family, [&](StreamOptions* options) {
    options->streams = streams;
    options->extra_stream_after_bytes = 1 << 20;
  });
  job.post(0, 1, frame_of(0, 0), {}, 0);
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; }));
  const std::size_t with_one_stream = open_sockets();
  const auto payload = pattern(kFramePayloadMax, 9);
  constexpr std::size_t kFrames = 100;
  for (std::size_t i = 1; i < kFrames; ++i) {
    job.post(0, 1, frame_of(i, payload.size(), FrameKind::kData), payload, i);
    ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == i + 1; }));
    ASSERT_LE(open_sockets(), with_one_stream + expected);
  }
  EXPECT_TRUE(job.until([&] { return open_sockets() == with_one_stream + expected; }));
}

TEST_P(StreamTransport, OpensNoMoreStreamsThanItMay) { count_further_sockets(GetParam(), 2, 2); }

TEST_P(StreamTransport, OpensOneStreamWithinAHostIfNobodySaysHowMany) {
  count_further_sockets(GetParam(), 0, 0);
}

TEST_P(StreamTransport, TinySocketBuffersOnlyMakeItSlower) {
  Job job(2, GetParam(), [](StreamOptions* options) {
    options->send_buffer_bytes = 4096;
    options->receive_buffer_bytes = 4096;
    options->streams = 1;
  });
  std::vector<std::vector<std::byte>> payloads;
  for (int i = 0; i < 10; ++i) payloads.push_back(pattern(30000 + i, i));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(job.post(0, 1, frame_of(i, payloads[i].size()), payloads[i], i),
              PostResult::kPending);
  }
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 10; }));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(job.sinks[1]->frames[i].payload, payloads[i]);
  ASSERT_TRUE(job.until([&] { return job.sinks[0]->sent_tokens.size() == 10; }));
}

TEST_P(StreamTransport, SaysFullInsteadOfQueueingWithoutBound) {
  Job job(2, GetParam());
  const auto payload = pattern(kFramePayloadMax, 1);
  auto& endpoint = job.transports[0]->endpoint(1);
  int taken = 0;
  while (endpoint.post_send(frame_of(taken, payload.size()), payload, taken) != PostResult::kFull) {
    ASSERT_LT(++taken, 1000);
  }
  EXPECT_TRUE(job.sinks[0]->sent_tokens.empty()) << "sent() from within post_send()";
  ASSERT_TRUE(job.until([&] { return static_cast<int>(job.sinks[1]->frames.size()) == taken; }));
  EXPECT_NE(endpoint.post_send(frame_of(taken, 8), std::span(payload).first(8), 1),
            PostResult::kFull);
}

TEST_P(StreamTransport, ACancelledMessageNeitherReportsNorBreaksTheChannel) {
  Job job(2, GetParam(), [](StreamOptions* options) {
    options->send_buffer_bytes = options->receive_buffer_bytes = 8192;
  });
  job.post(0, 1, frame_of(0, 0), {}, 0);
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; }));
  auto payload = pattern(200000, 1);
  const auto kept = payload;
  auto& endpoint = job.transports[0]->endpoint(1);
  const auto post = [&](std::uint64_t sequence, FrameKind kind) {
    return endpoint.post_send(frame_of(sequence, payload.size(), kind), payload, 5);
  };
  ASSERT_EQ(post(1, FrameKind::kEager), PostResult::kPending);  // has begun
  ASSERT_EQ(post(2, FrameKind::kEager), PostResult::kPending);  // keeps its place
  ASSERT_EQ(post(3, FrameKind::kData), PostResult::kPending);   // does not come any more
  for (int i = 0; i < 100; ++i) job.transports[0]->poll(*job.sinks[0]);
  endpoint.cancel(5);
  payload.assign(payload.size(), std::byte{0});
  job.post(0, 1, frame_of(4, 100), std::span(kept).first(100), 6);
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.back().header.sequence == 4; }));
  const auto& frames = job.sinks[1]->frames;
  ASSERT_EQ(frames.size(), 4U);
  for (const std::uint64_t sequence : {1, 2}) {
    EXPECT_EQ(frames[sequence].header.sequence, sequence);
    EXPECT_TRUE(frames[sequence].payload == kept) << sequence;
  }
  const auto& tokens = job.sinks[0]->sent_tokens;
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 5U), 0);
}

TEST_P(StreamTransport, AllPairsDiallingAtOnceMeetOnce) {
  for (int round = 0; round < 5; ++round) {
    constexpr int kRanks = 6;
    Job job(kRanks, GetParam());
    std::vector<std::thread> ranks;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto payload = pattern(3000, rank);
        for (Rank peer = 0; peer < kRanks; ++peer) {
          if (peer == rank) continue;
          for (int i = 0; i < 10; ++i) {
            while (job.transports[rank]->endpoint(peer).post_send(frame_of(i, 3000), payload, i) ==
                   PostResult::kFull) {
              job.transports[rank]->poll(*job.sinks[rank]);
            }
          }
        }
        const TimePoint deadline = Clock::now() + std::chrono::seconds(20);
        while (job.sinks[rank]->frames.size() < 10 * (kRanks - 1) && Clock::now() < deadline) {
          if (!job.transports[rank]->poll(*job.sinks[rank])) std::this_thread::yield();
        }
        job.transports[rank]->close(deadline, *job.sinks[rank]);
      });
    }
    for (auto& each : ranks) each.join();
    for (Rank rank = 0; rank < kRanks; ++rank) {
      std::map<Rank, std::uint64_t> next;
      ASSERT_EQ(job.sinks[rank]->frames.size(), 10u * (kRanks - 1)) << "rank " << rank;
      for (const auto& frame : job.sinks[rank]->frames) {
        EXPECT_EQ(frame.header.sequence, next[frame.peer]++);
        EXPECT_EQ(frame.payload, pattern(3000, frame.peer));
      }
      for (const auto& [peer, cause] : job.sinks[rank]->closed_causes) {
        EXPECT_TRUE(cause.ok()) << cause.message();
      }
    }
  }
}

TEST_P(StreamTransport, ManyPeersAreServedByReadiness) {
  constexpr int kRanks = 8;
  Job job(kRanks, GetParam());
  const auto payload = pattern(50000, 4);
  for (int i = 0; i < 20; ++i) {
    for (Rank rank = 1; rank < kRanks; ++rank) {
      job.post(rank, 0, frame_of(i, payload.size()), payload, i);
      job.post(0, rank, frame_of(i, 100), std::span(payload).first(100), i);
    }
  }
  ASSERT_TRUE(job.until([&] {
    bool all = job.sinks[0]->frames.size() == 20 * (kRanks - 1);
    for (Rank rank = 1; rank < kRanks; ++rank) all = all && job.sinks[rank]->frames.size() == 20;
    return all;
  }));
  for (const auto& frame : job.sinks[0]->frames) ASSERT_EQ(frame.payload, payload);
  job.transports[0]->close(Clock::now() + std::chrono::seconds(5), *job.sinks[0]);
  for (Rank rank = 1; rank < kRanks; ++rank) {
    ASSERT_TRUE(job.until([&] { return job.sinks[rank]->closed_causes.count(0) == 1; }));
    EXPECT_TRUE(job.sinks[rank]->closed_causes[0].ok());
  }
}

// Rank 0 of two closes while rank 1 polls, until rank 1 has heard of it.
void leave_and_listen(Job& job) {
  std::thread closing(
      [&] { job.transports[0]->close(Clock::now() + std::chrono::seconds(60), *job.sinks[0]); });
  const TimePoint deadline = Clock::now() + std::chrono::seconds(60);
  while (job.sinks[1]->closed_causes.empty() && Clock::now() < deadline) {
    if (!job.transports[1]->poll(*job.sinks[1])) std::this_thread::yield();
  }
  closing.join();
}

TEST_P(StreamTransport, GoodbyeComesAfterEverythingThatWasQueued) {
  Job job(2, GetParam());
  const auto payload = pattern(kFramePayloadMax, 2);
  job.post(0, 1, frame_of(0, 0), {}, 0);
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; }));
  for (int i = 1; i <= 40; ++i) {
    ASSERT_NE(job.transports[0]->endpoint(1).post_send(frame_of(i, payload.size()), payload, i),
              PostResult::kFull);
  }
  leave_and_listen(job);
  EXPECT_EQ(job.sinks[1]->frames.size(), 41u);
  ASSERT_EQ(job.sinks[1]->closed_causes.count(0), 1u);
  EXPECT_TRUE(job.sinks[1]->closed_causes[0].ok());
  EXPECT_EQ(job.transports[1]->endpoint(0).post_send(frame_of(0, 0), {}, 0), PostResult::kDone);
  EXPECT_EQ(job.transports[0]->endpoint(1).post_send(frame_of(0, 0), {}, 0), PostResult::kDone);
}

// Rank 0 leaves while one more stream comes about, after each number of looks at it: rank 1 may
// have taken that stream and rank 0 not.
TEST_P(StreamTransport, GoodbyeIsHeardWhileOneMoreStreamComesAbout) {
  const auto payload = pattern(kFramePayloadMax / 4, 2);
  constexpr int kFrames = 8;
  for (int looks = 0; looks < 300; ++looks) {
    SCOPED_TRACE(looks);
    Job job(2, GetParam(), [](StreamOptions* options) {
      options->streams = 2;
      options->extra_stream_after_bytes = 1;
      options->send_buffer_bytes = options->receive_buffer_bytes = 4096;
    });
    job.post(0, 1, frame_of(0, 0), {}, 0);
    ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; }));
    for (int i = 1; i <= kFrames; ++i) {
      job.post(0, 1, frame_of(i, payload.size(), FrameKind::kData), payload, i);
    }
    for (int look = 0; look < looks; ++look) job.poll();
    leave_and_listen(job);
    EXPECT_EQ(job.sinks[1]->frames.size(), kFrames + 1U);
    ASSERT_EQ(job.sinks[1]->closed_causes.count(0), 1U);
    EXPECT_TRUE(job.sinks[1]->closed_causes[0].ok()) << job.sinks[1]->closed_causes[0].message();
  }
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Rank 0 leaves while its dial comes about, after each number of looks at it: rank 1 may have
// admitted it though rank 0 has not heard so.
TEST_P(StreamTransport, GoodbyeIsHeardWhileTheFirstStreamComesAbout) {
  int heard = 0;
  for (int looks = 0; looks < 40; ++looks) {
    SCOPED_TRACE(looks);
    const std::size_t before = open_descriptors();
    Job job(2, GetParam());
    const std::size_t of_a_rank = (open_descriptors() - before) / 2;
    job.transports[0]->endpoint(1);
    for (int look = 0; look < looks; ++look) job.poll();
    std::atomic<bool> is_closed = false;
    std::thread closing([&] {
      job.transports[0]->close(Clock::now() + std::chrono::seconds(60), *job.sinks[0]);
      is_closed = true;
    });
    while (!is_closed) job.transports[1]->poll(*job.sinks[1]);
    closing.join();
    job.transports[0].reset();
    ASSERT_TRUE(job.until([&] { return open_descriptors() == before + of_a_rank; }))
        << "rank 1 still has a connection";
    if (job.sinks[1]->closed_causes.empty()) continue;
    ++heard;
    EXPECT_TRUE(job.sinks[1]->closed_causes[0].ok()) << job.sinks[1]->closed_causes[0].message();
  }
  EXPECT_GT(heard, 0) << "the connection has never come about";
}

TEST_P(StreamTransport, ClosingIsIdempotentAndReturnsWhenTheDeadlineHasPassed) {
  Job job(2, GetParam());
  const auto payload = pattern(kFramePayloadMax, 2);
  std::size_t pending = 0;
  for (int i = 0; i < 40; ++i) {
    pending += job.post(0, 1, frame_of(i, payload.size()), payload, i) == PostResult::kPending;
  }
  job.transports[0]->close(Clock::now(), *job.sinks[0]);
  EXPECT_EQ(job.sinks[0]->sent_tokens.size(), pending);
  job.transports[0]->close(kNever, *job.sinks[0]);
  EXPECT_FALSE(job.transports[0]->poll(*job.sinks[0]));
}

TEST_P(StreamTransport, ASilentEndIsReportedWithRankAndAddress) {
  Job job(3, GetParam());
  for (Rank rank : {0, 2}) {
    job.post(1, rank, frame_of(0, 0), {}, 0);
    ASSERT_TRUE(job.until([&] { return job.sinks[rank]->frames.size() == 1; }));
  }
  job.transports[1].reset();  // sockets close, nobody says goodbye
  for (Rank rank : {0, 2}) {
    ASSERT_TRUE(job.until([&] { return job.sinks[rank]->closed_causes.count(1) == 1; }));
    const Status cause = job.sinks[rank]->closed_causes[1];
    EXPECT_EQ(cause.code(), ErrorCode::kRankFailed);
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_NE(cause.message().find("rank 1"), std::string::npos) << cause.message();
    EXPECT_NE(cause.message().find(GetParam() == Family::kTcp ? "127.0.0.1:" : "UNIX socket"),
              std::string::npos)
        << cause.message();
  }
  EXPECT_EQ(job.sinks[0]->closed_causes.size(), 1u);
}

TEST_P(StreamTransport, EveryPendingTokenOfALostPeerComesBackBeforeClosed) {
  Job job(2, GetParam());
  const auto payload = pattern(kFramePayloadMax, 2);
  job.post(0, 1, frame_of(1000, 0), {}, 0);
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; }));
  std::size_t pending = 0;
  for (int i = 0; i < 40; ++i) {
    pending += job.transports[0]->endpoint(1).post_send(frame_of(i, payload.size()), payload, i) ==
               PostResult::kPending;
  }
  ASSERT_GT(pending, 0u);
  job.transports[1].reset();
  ASSERT_TRUE(job.until([&] { return job.sinks[0]->closed_causes.count(1) == 1; }));
  EXPECT_EQ(job.sinks[0]->sent_tokens.size(), pending);
}

TEST_P(StreamTransport, ARankThatComputesIsWaitedFor) {
  Job job(2, GetParam());
  // Rank 1 does not poll at all while rank 0 dials and posts.
  job.transports[0]->endpoint(1).post_send(frame_of(7, 0), {}, 0);
  EXPECT_TRUE(job.transports[0]->has_unsent());
  const TimePoint busy_until = Clock::now() + std::chrono::milliseconds(2500);
  while (Clock::now() < busy_until) job.transports[0]->poll(*job.sinks[0]);
  EXPECT_TRUE(job.sinks[0]->closed_causes.empty());
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; }));
  EXPECT_FALSE(job.transports[0]->has_unsent());
}

TEST_P(StreamTransport, AWrongKeyEndsTheLinkOfTheDiallerAndIsLoggedByTheOther) {
  const LogRecorder log;
  Job job(2, GetParam(), [](StreamOptions* options) {
    if (options->rank == 1) options->key = JobKey::from_text("quite another key").value();
  });
  job.transports[1]->endpoint(0).post_send(frame_of(0, 0), {}, 0);
  ASSERT_TRUE(job.until([&] { return job.sinks[1]->closed_causes.count(0) == 1; }));
  const Status cause = job.sinks[1]->closed_causes[0];
  EXPECT_EQ(cause.code(), ErrorCode::kAuthentication);
  EXPECT_NE(cause.message().find("UNISONO_JOB_KEY"), std::string::npos) << cause.message();
  EXPECT_TRUE(job.sinks[0]->closed_causes.empty());
  EXPECT_TRUE(LogRecorder::has("does not know the key"));
}

TEST_P(StreamTransport, APeerWithoutAddressIsReportedByPoll) {
  auto options = options_for(0, 2, GetParam());
  auto transport = std::move(*make_stream_transport(options));
  ASSERT_TRUE(transport->set_peers({transport->address(), ""}).ok());
  transport->endpoint(1).post_send(frame_of(0, 0), {}, 0);
  RecordingSink sink;
  transport->poll(sink);
  ASSERT_EQ(sink.closed_causes.count(1), 1u);
  EXPECT_EQ(sink.closed_causes[1].code(), ErrorCode::kUnsupported);
}

TEST_P(StreamTransport, SetPeersChecksItsInput) {
  auto transport = std::move(*make_stream_transport(options_for(0, 2, GetParam())));
  EXPECT_EQ(transport->set_peers({""}).code(), ErrorCode::kInvalidArgument);
  const Status status = transport->set_peers({"", "http://elsewhere"});
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos);
  EXPECT_FALSE(
      transport->set_peers({"", GetParam() == Family::kTcp ? "unix:x" : "tcp:1:127.0.0.1"}).ok());
}

TEST(StreamTransportProcess, AKilledPeerIsReported) {
  auto transport = std::move(*make_stream_transport(options_for(0, 2, Family::kTcp)));
  const std::string address = transport->address();
  const pid_t child = ::fork();
  if (child == 0) {
    auto other = std::move(*make_stream_transport(options_for(1, 2, Family::kTcp)));
    const std::string mine = other->address();
    if (!other->set_peers({address, mine}).ok()) ::_exit(1);
    RecordingSink sink;
    other->endpoint(0).post_send(frame_of(0, 0), {}, 0);
    while (true) other->poll(sink);
  }
  ASSERT_TRUE(transport->set_peers({address, ""}).ok());
  RecordingSink sink;
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  while (sink.frames.empty() && Clock::now() < deadline) transport->poll(sink);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (sink.closed_causes.empty() && Clock::now() < deadline) transport->poll(sink);
  ASSERT_EQ(sink.closed_causes.count(1), 1u);
  EXPECT_EQ(sink.closed_causes[1].code(), ErrorCode::kRankFailed);
}

TEST(StreamTransportTcp, WorksOverIpv6AndOverAllInterfaces) {
  for (const char* bind : {"::1", "localhost", ""}) {
    auto options = options_for(0, 2, Family::kTcp);
    options.bind_address = bind;
    auto probe = make_stream_transport(options);
    if (!probe && std::string_view(bind) == "::1") GTEST_SKIP() << probe.error().message();
    probe = Status(ErrorCode::kClosed, "done with it");
    Job job(2, Family::kTcp, [&](StreamOptions* each) { each->bind_address = bind; });
    EXPECT_LE(job.transports[0]->address().size(), 512u);
    job.post(0, 1, frame_of(3, 0), {}, 0);
    ASSERT_TRUE(job.until([&] { return job.sinks[1]->frames.size() == 1; })) << bind;
  }
}

TEST(StreamTransportTcp, OptionsOutOfRangeAreRefused) {
  const auto refused = [](auto change) {
    auto options = options_for(0, 2, Family::kTcp);
    change(&options);
    const auto made = make_stream_transport(options);
    return !made && made.error().code() == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](StreamOptions* o) { o->rank = 2; }));
  EXPECT_TRUE(refused([](StreamOptions* o) { o->rank = -1; }));
  EXPECT_TRUE(refused([](StreamOptions* o) { o->size = 0; }));
  EXPECT_TRUE(refused([](StreamOptions* o) { o->streams = -1; }));
  EXPECT_TRUE(refused([](StreamOptions* o) { o->streams = 17; }));
  EXPECT_TRUE(refused([](StreamOptions* o) { o->job_id.assign(65, 'x'); }));
  EXPECT_TRUE(refused([](StreamOptions* o) { o->bind_address = "no.such.host.invalid"; }));
}

}  // namespace
}  // namespace unisono
