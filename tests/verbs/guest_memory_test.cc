// What the transport asks of a real device: registrations once per buffer, one completion for
// several pieces, no copy of large payloads, and nothing of it left afterwards. Two ranks on one
// thread.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <csignal>
#include <cstring>
#include <limits>
#include <set>

#include "tests/support/log_guard.h"
#include "tests/support/rank_job.h"
#include "tests/verbs/guest_ports.h"
#include "transports/tcp/stream_transport.h"
#include "transports/verbs/verbs_transport_state.h"

namespace unisono::test {
namespace {

using verbs::VerbsTransport;

constexpr int kPieces = 12;
constexpr std::size_t kMessageBytes = kPieces * kFramePayloadMax;

/// Memory that is mapped and unmapped on its own, unlike malloc's.
class Mapped {
 public:
  Mapped() {
    void* at =
        mmap(nullptr, kMessageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(at);
  }
  ~Mapped() { munmap(begin_, kMessageBytes); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::byte* begin() const { return begin_; }
  std::span<std::byte> bytes() const { return {begin_, kMessageBytes}; }

 private:
  std::byte* begin_;
};

/// Takes the pieces of a message where they belong.
class Taker final : public FrameSink {
 public:
  std::byte* target = nullptr;
  int received_frames = 0;
  std::set<std::uint64_t> lent;
  Status ended;

 private:
  Placement place(Rank, const FrameHeader& header) override {
    return {Placement::Kind::kInto, target + header.offset};
  }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank, const FrameHeader&) override { ++received_frames; }
  void sent(Rank, std::uint64_t token) override { lent.erase(token); }
  void closed(Rank, const Status& cause) override { ended = cause; }
};

/// Rank 0 sends messages to rank 1.
class Pair {
 public:
  explicit Pair(const VerbsOptions& options = {}) {
    std::vector<std::string> addresses;
    for (Rank rank : {0, 1}) {
      members_[rank] = make(options, rank);
      addresses.push_back(members_[rank]->address());
    }
    for (Rank rank : {0, 1}) {
      const Status known = members_[rank]->set_peers(addresses);
      if (!known) throw Error(known);
    }
  }

  VerbsTransport& at(Rank rank) { return *members_[rank]; }

  /// False where the link ends or nothing moves any more.
  bool move(std::span<const std::byte> from, std::byte* to) {
    sinks_[1].target = to;
    sinks_[1].received_frames = 0;
    int posted = 0;
    const TimePoint deadline = Clock::now() + std::chrono::seconds(20);
    while (sinks_[1].received_frames < kPieces || !sinks_[0].lent.empty()) {
      while (posted < kPieces && post(from, posted)) ++posted;
      for (Rank rank : {0, 1}) members_[rank]->poll(sinks_[rank]);
      if (Clock::now() > deadline || !sinks_[0].ended || !sinks_[1].ended) return false;
    }
    return true;
  }

  void close() {
    // Each waits for what the other still has to read, so neither may be closed alone: here all has
    // arrived.
    for (Rank rank : {0, 1}) {
      members_[rank]->close(Clock::now() + std::chrono::seconds(5), sinks_[rank]);
    }
  }

 private:
  static std::unique_ptr<VerbsTransport> make(VerbsOptions options, Rank rank) {
    StreamOptions stream;
    stream.rank = options.rank = rank;
    stream.size = options.size = 2;
    stream.job_id = "guest";
    stream.key = value_of(JobKey::from_text("the key of the tests in the guest, known to both"));
    stream.bind_address = "127.0.0.1";
    return value_of(VerbsTransport::make(value_of(verbs::load_verbs_library()), std::move(options),
                                         value_of(make_stream_transport(std::move(stream)))));
  }
  template <typename T>
  static T value_of(Result<T> result) {
    if (!result) throw Error(result.error());
    return std::move(*result);
  }

  bool post(std::span<const std::byte> from, int piece) {
    const std::size_t offset = static_cast<std::size_t>(piece) * kFramePayloadMax;
    FrameHeader header;
    header.kind = FrameKind::kData;
    header.payload_bytes = kFramePayloadMax;
    header.offset = offset;
    header.total_bytes = from.size();
    const std::uint64_t token = ++token_;
    const PostResult result =
        members_[0]->endpoint(1).post_send(header, from.subspan(offset, kFramePayloadMax), token);
    if (result == PostResult::kPending) sinks_[0].lent.insert(token);
    return result != PostResult::kFull;
  }

  std::unique_ptr<VerbsTransport> members_[2];
  Taker sinks_[2];
  std::uint64_t token_ = 0;
};

void fill(std::span<std::byte> bytes, int seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((i * 7 + i / 4096 + static_cast<std::size_t>(seed)) & 0xff);
  }
}

class Devices : public testing::Test {
 protected:
  void SetUp() override {
    if (guest_devices().empty()) GTEST_SKIP() << "no device here";
  }
};

TEST_F(Devices, AreAskedForNoRegistrationByARepeatedCall) {
  Pair pair;
  const Mapped source, target;
  fill(source.bytes(), 0);
  ASSERT_TRUE(pair.move(source.bytes(), target.begin()));
  const auto sending = pair.at(0).registration_counts();
  const auto receiving = pair.at(1).registration_counts();
  EXPECT_EQ(sending.made, 1U);
  EXPECT_EQ(receiving.made, 1U);
  for (int round = 1; round <= 20; ++round) {
    fill(source.bytes(), round);
    ASSERT_TRUE(pair.move(source.bytes(), target.begin()));
    ASSERT_EQ(std::memcmp(source.begin(), target.begin(), kMessageBytes), 0) << "round " << round;
  }
  EXPECT_EQ(pair.at(0).registration_counts().made, sending.made);
  EXPECT_EQ(pair.at(1).registration_counts().made, receiving.made);
  pair.close();
}

TEST_F(Devices, CopyNoLargePayloadAndSayOnceThatSeveralAreDone) {
  Pair pair;
  const Mapped source, target;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    fill(source.bytes(), round);
    ASSERT_TRUE(pair.move(source.bytes(), target.begin()));
  }
  const verbs::WorkCounts& sender = pair.at(0).work_counts();
  const verbs::WorkCounts& receiver = pair.at(1).work_counts();
  EXPECT_EQ(sender.staged_bytes + receiver.staged_bytes, 0U);
  EXPECT_GE(receiver.reads, static_cast<std::uint64_t>(kRounds * kPieces));
  EXPECT_LE(receiver.signalled, receiver.reads / 2);
  std::printf(
      "%d messages of %d pieces: %llu reads, %llu completions; sender: %llu writes, %llu "
      "completions\n",
      kRounds, kPieces, static_cast<unsigned long long>(receiver.reads),
      static_cast<unsigned long long>(receiver.signalled),
      static_cast<unsigned long long>(sender.writes),
      static_cast<unsigned long long>(sender.signalled));
  pair.close();
}

// Another buffer at the same address is other memory: an old registration would read the old pages.
TEST_F(Devices, ReadMemoryThatWasMappedAnew) {
  Pair pair;
  for (int round = 0; round < 5; ++round) {
    const Mapped source, target;
    fill(source.bytes(), round);
    ASSERT_TRUE(pair.move(source.bytes(), target.begin()));
    ASSERT_EQ(std::memcmp(source.begin(), target.begin(), kMessageBytes), 0) << "round " << round;
  }
  EXPECT_EQ(pair.at(0).registration_counts().made, 5U);
  EXPECT_EQ(pair.at(1).registration_counts().made, 5U);
  pair.close();
}

TEST_F(Devices, CarryMessagesThatAreSplitByALowLimit) {
  VerbsOptions options;
  options.message_bytes_max = 4096;
  Pair pair(options);
  const Mapped source, target;
  for (int round = 0; round < 3; ++round) {
    fill(source.bytes(), round);
    ASSERT_TRUE(pair.move(source.bytes(), target.begin()));
    ASSERT_EQ(std::memcmp(source.begin(), target.begin(), kMessageBytes), 0) << "round " << round;
  }
  EXPECT_GE(pair.at(1).work_counts().reads, 3 * kMessageBytes / 4096);
  pair.close();
}

TEST_F(Devices, KeepNothingOfTransportsThatWereClosed) {
  const std::vector<std::string> before = kernel_resources();
  for (int round = 0; round < 3; ++round) {
    Pair pair;
    const Mapped source, target;
    ASSERT_TRUE(pair.move(source.bytes(), target.begin()));
    EXPECT_NE(kernel_resources(), before) << "this test sees nothing";
    pair.close();
  }
  EXPECT_TRUE(are_back(before));
}

TEST_F(Devices, KeepNothingOfTransportsThatWereNotClosed) {
  const std::vector<std::string> before = kernel_resources();
  {
    Pair pair;
    const Mapped source, target;
    ASSERT_TRUE(pair.move(source.bytes(), target.begin()));
  }
  EXPECT_TRUE(are_back(before));
}

TEST_F(Devices, KeepNothingOfAJobThatHasEnded) {
  const std::vector<std::string> before = kernel_resources();
  run_ranks(4, "verbs", [](Communicator& comm) {
    for (const std::size_t count : {10ul, 300'000ul}) add_up(comm, count);
    Communicator other = comm.duplicate();
    add_up(other, 1000);
  });
  EXPECT_TRUE(are_back(before));
}

TEST_F(Devices, KeepNothingOfAJobWhosePortWentDown) {
  const std::vector<std::string> before = kernel_resources();
  {
    const Environment environment{{"UNISONO_VERBS_DEVICES", "rxe0"}};
    LogGuard log;
    log.expect("rxe0 port 1");
    const Error error = error_of_job(2, "verbs", [](Communicator& comm) {
      add_up(comm, 100'000);
      if (comm.rank() == 0) set_port("rxe0", false);
      for (;;) add_up(comm, 100'000);
    });
    EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    set_port("rxe0", true);
  }
  EXPECT_TRUE(are_back(before));
}

TEST_F(Devices, KeepNothingOfARankThatWasKilled) {
  const std::vector<std::string> before = kernel_resources();
  try {
    spawn(3,
          [](Communicator& comm) {
            for (int round = 0;; ++round) {
              add_up(comm, 100'000);
              if (comm.rank() == 1 && round == 5) std::raise(SIGKILL);
            }
          },
          {.as = SpawnOptions::As::kProcesses, .transport = "verbs", .timeout = kCallTimeout});
    ADD_FAILURE() << "nobody died";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    EXPECT_EQ(error.rank(), 1) << error.what();
  }
  EXPECT_TRUE(are_back(before));
}

}  // namespace
}  // namespace unisono::test
