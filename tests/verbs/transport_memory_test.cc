// Ranks without host memory at the worst moment: cancel() and abandon() do not throw, and what
// could not be done is done by a later poll, or the link ends and says why.
#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "tests/support/refused_allocation.h"
#include "tests/support/watchdog.h"
#include "tests/verbs/transport_fixture.h"
#include "tests/verbs/transport_impostor.h"

namespace unisono::verbs::test {
namespace {

using testing::HasSubstr;
using unisono::test::allocations;
using unisono::test::is_sanitized;
using unisono::test::refused_allocation;
using unisono::test::refused_bytes;
using unisono::test::refused_from;

constexpr std::uint64_t kAllocationsMax = 2000;

/// Does `work` with its `nth` allocation refused. False: it made fewer.
template <typename Work>
bool is_refused_one(std::uint64_t nth, const Work& work) {
  refused_allocation = allocations + nth;
  work();
  return allocations >= std::exchange(refused_allocation, 0);
}

/// False: it was out of memory.
template <typename Work>
bool does(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}
bool poll(World& world, Rank rank) {
  return does([&] { world.poll(rank); });
}
/// Of rank 0, whose engine is `sink`.
bool poll(World& world, FrameSink& sink) {
  return does([&] { world.verbs(0).poll(sink); });
}

/// Has the memory to hear how a link ends.
class EndWitness final : public FrameSink {
 public:
  std::optional<Status> cause;
  int ends = 0;

  Placement place(Rank, const FrameHeader&) override { return {}; }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank, const FrameHeader&) override {}
  void sent(Rank, std::uint64_t) override {}
  void closed(Rank, const Status& why) override {
    refused_allocation = 0;
    cause = why;
    ++ends;
  }
};

void expect_end_for_want_of_words(World& world) {
  EndWitness witness;
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  refused_bytes = 30;
  while (!witness.cause && Clock::now() < deadline) poll(world, witness);
  refused_bytes = 0;
  ASSERT_TRUE(witness.cause.has_value());
  EXPECT_EQ(witness.cause->code(), ErrorCode::kOutOfResources);
  EXPECT_EQ(witness.cause->rank(), 0);
  EXPECT_EQ(witness.cause->message(), "no memory");
}

/// Rank 1 cannot read the large frame that rank 0 has lent it.
bool begin_held_read(World& world) {
  if (!world.greet()) return false;
  world.network().hold(1);
  return world.send(0, 1, {.bytes = kLarge}) &&
         world.pump_until([&] { return world.verbs(1).work_counts().reads > 0; }, "a read");
}

/// Rank 1's hello, of the first epoch or the second, is on its way to rank 0.
bool begin_meeting(World& world, bool is_first) {
  if (is_first) {
    if (!world.stands()) return false;
    for (const int bytes : {8, 8}) world.send(0, 1, {.bytes = static_cast<std::size_t>(bytes)});
  } else if (!begin_held_read(world) || world.cancel_all(0, 1) != 1) {
    return false;
  }
  const std::uint64_t epoch = is_first ? 1 : 2;
  return world.pump_until([&] { return world.verbs(1).work_counts().epochs == epoch; }, "a hello");
}

bool has_all(World& world) { return world.has_settled(0, 1) && world.has_settled(1, 0); }

/// All frames come, or the link ends at both, which `end` may look at before a goodbye ends it too.
void expect_frames_or_end(
    World& world, std::uint64_t nth, const std::function<void()>& end = [] {}) {
  world.network().release(1);
  const auto is_over = [&] {
    return world.has_ended(0, 1) ? world.has_ended(1, 0) : has_all(world);
  };
  EXPECT_TRUE(world.pump_until(is_over, "the frames or an end")) << "allocation " << nth;
  if (world.has_ended(0, 1)) end();
  world.close_all();
}

void expect_frames(World& world, std::uint64_t nth) {
  EXPECT_TRUE(world.pump_until([&] { return has_all(world); }, "the frames"))
      << "allocation " << nth;
  world.close_all();
}

/// Runs `act` in a new world for each allocation in turn, until it returns that it made fewer.
/// False of `prepare`: there is nothing to run it for.
template <typename Prepare, typename Act>
void refuse_each(const WorldShape& shape, const Prepare& prepare, const Act& act) {
  bool refused = true;
  for (std::uint64_t nth = 1; refused && !testing::Test::HasFailure(); ++nth) {
    LogGuard log;
    log.expect("");
    World world(shape);
    ASSERT_TRUE(prepare(world));
    refused = act(world, nth);
    ASSERT_LT(nth, kAllocationsMax);
  }
}

TEST(Memory, LacksWhileAFrameIsCancelled) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  refuse_each({}, begin_held_read, [](World& world, std::uint64_t nth) {
    const bool refused = is_refused_one(nth, [&] { EXPECT_NO_THROW(world.cancel_all(0, 1)); });
    expect_frames_or_end(world, nth);
    return refused;
  });
}

TEST(Memory, LacksWhileAPlaceIsAbandoned) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  refuse_each({}, begin_held_read, [](World& world, std::uint64_t nth) {
    const std::span<std::byte> memory = world.witness(1).memory_in_use(0);
    Endpoint& endpoint = world.verbs(1).endpoint(0);
    const bool refused = is_refused_one(
        nth, [&] { EXPECT_NO_THROW(endpoint.abandon(memory.data(), memory.size())); });
    world.witness(1).expect_abandoned(0);
    expect_frames_or_end(world, nth);
    return refused;
  });
}

TEST(Memory, LacksWhenAnEpochBegins) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  refuse_each({}, begin_held_read, [](World& world, std::uint64_t nth) {
    EXPECT_EQ(world.cancel_all(0, 1), 1u);
    const bool refused = is_refused_one(nth, [&] { poll(world, 0); });
    expect_frames_or_end(world, nth);
    return refused;
  });
}

TEST(Memory, LacksWhenTwoRanksMeet) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  struct Case {
    bool is_first, asks_for_paths;
  };
  for (const Case& each : {Case{true, false}, Case{false, false}, Case{false, true}}) {
    WorldShape shape;
    if (each.asks_for_paths) shape.askers = {0, 1};
    const auto meet = [&](World& world) { return begin_meeting(world, each.is_first); };
    refuse_each(shape, meet, [&](World& world, std::uint64_t nth) {
      const bool refused = is_refused_one(nth, [&] { poll(world, 0); });
      expect_frames_or_end(world, nth, [&] {
        const Status here = *world.witness(0).closed_cause(1);
        EXPECT_EQ(here.code(), ErrorCode::kOutOfResources);
        EXPECT_EQ(here.rank(), 0) << "whose memory it is";
        EXPECT_THAT(here.message(), HasSubstr("rank 0 has no memory left"));
        EXPECT_THAT(world.witness(1).closed_cause(0)->message(),
                    HasSubstr("rank 0 gave it up: rank 0 has no memory left"));
      });
      return refused;
    });
  }
}

TEST(Memory, LacksEvenForTheWordsOfTheEnd) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  World world;
  ASSERT_TRUE(begin_meeting(world, true));
  expect_end_for_want_of_words(world);
  world.close_all();
}

// Which is taken in the midst of others' completions.
TEST(Memory, LacksForTheWordsAboutARubbishImmediate) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  Impostor impostor(1, 2);
  World world(impostor.shape());
  impostor.join(world);
  ASSERT_TRUE(impostor.meet(world, 0));
  impostor.immediate(~0u);
  world.network().wait_until_idle();
  expect_end_for_want_of_words(world);
  impostor.fixture.reset();
}

// One that has written on behind its goodbye ends by that, without words.
TEST(Memory, LacksForTheWordsAboutWhatComesBehindAGoodbye) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  Impostor impostor(1, 2);
  World world(impostor.shape());
  impostor.join(world);
  ASSERT_TRUE(impostor.meet(world, 0));
  impostor.say(0, encode_leaving(kLine));
  world.turns(600);
  FrameHeader header;
  header.reserved = static_cast<std::uint16_t>(RecordKind::kWhole);
  header.payload_bytes = 150;  // beyond what is announced
  std::memcpy(impostor.fixture->memory.data(), &header, sizeof header);
  const Hello& theirs = impostor.hello_of(0);
  impostor.write(theirs.ring_address, theirs.ring_keys[0], 2 * kLine,
                 encode(ImmediateKind::kWritten, 2));
  impostor.immediate(~0u);
  world.network().wait_until_idle();
  expect_end_for_want_of_words(world);
  impostor.fixture.reset();
}

/// How rank 0's link to another ends when the `*nth` allocation of its polls is refused, which then
/// is 0, or is how many fewer there were.
Status end_with_one_refused(World& world, std::uint64_t* nth) {
  EndWitness witness;
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  world.pause(0);
  while (!witness.cause && Clock::now() < deadline) {
    world.turns(1);
    const std::uint64_t before = allocations;
    if (*nth != 0) refused_allocation = before + *nth;
    poll(world, witness);
    refused_allocation = 0;
    *nth -= std::min(*nth, allocations - before);
  }
  world.pause(0, false);
  for (int polls = 0; polls < 600; ++polls) world.verbs(0).poll(witness);
  EXPECT_EQ(witness.ends, 1);
  return witness.cause.value_or(Status());
}

// There is no link yet that could end.
TEST(Memory, LacksForTheFirstWordOfAPeer) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  int lost = 0;
  for (std::uint64_t nth = 1, fewer = 0; fewer == 0 && !HasFailure(); ++nth) {
    Impostor impostor(1, 2);
    World world(impostor.shape());
    impostor.join(world);
    impostor.say(0, "rubbish");
    fewer = nth;
    const Status end = end_with_one_refused(world, &fewer);
    const bool is_own = end.code() == ErrorCode::kOutOfResources;
    EXPECT_EQ(end.code(), is_own ? ErrorCode::kOutOfResources : ErrorCode::kProtocol);
    EXPECT_EQ(end.rank(), is_own ? 0 : 1);
    lost += is_own;
    impostor.fixture.reset();
    ASSERT_LT(nth, kAllocationsMax);
  }
  EXPECT_GT(lost, 0);
}

/// Takes no memory to count the frames of one rank.
class FrameCount final : public FrameSink {
 public:
  explicit FrameCount(Rank of) : of_(of) {}
  int frames = 0;

  Placement place(Rank, const FrameHeader&) override { return {}; }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank peer, const FrameHeader&) override { frames += peer == of_; }
  void sent(Rank, std::uint64_t) override {}
  void closed(Rank, const Status&) override {}

 private:
  Rank of_;
};

/// Rank 0 gets the frame of rank 2, which takes no memory, while there is none for anything else.
void expect_frame_without_memory(World& world) {
  FrameCount count(2);
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  bool lacked = false;
  refused_bytes = 40;
  while (count.frames == 0 && Clock::now() < deadline) lacked |= !poll(world, count);
  refused_bytes = 0;
  EXPECT_TRUE(lacked);
  EXPECT_EQ(count.frames, 1);
}

// A link that breaks, and a port that goes.
TEST(Memory, LacksForOneLinkAndNotForTheOthers) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  for (const bool loses_port : {false, true}) {
    LogGuard log;
    log.expect("");
    World world({.ranks = 3, .ports = 2});
    ASSERT_TRUE(world.greet());
    world.network().fail_next_request(0, 0, IBV_WC_RETRY_EXC_ERR);
    ASSERT_TRUE(world.send(0, 1, {.bytes = 8}));
    world.network().wait_until_idle();
    ASSERT_TRUE(world.send(2, 0, {.bytes = 8}));
    world.network().wait_until_idle();
    if (loses_port) world.network().set_link(0, 1, false);
    expect_frame_without_memory(world);
    world.close_all();
  }
}

// What a port's connecting and its refusal take: paths that come, ports that have none or do not
// take theirs.
TEST(Memory, LacksWhenPathsAreAnswered) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  enum class Answer { kPaths, kOnePath, kPathsThatOnePortRefuses };
  for (const Answer answer : {Answer::kPaths, Answer::kOnePath, Answer::kPathsThatOnePortRefuses}) {
    const auto ask = [&](World& world) {
      if (!world.stands()) return false;
      world.cm(0).silent = true;
      if (answer == Answer::kOnePath) world.cm(0).unreachable = {{"10.1.0.1", ENETUNREACH}};
      for (const Rank from : {0, 1}) world.send(from, 1 - from, {.bytes = 8});
      return world.pump_until([&] { return world.cm(0).ids == 2; }, "questions");
    };
    refuse_each({.ports = 2, .askers = {0, 1}}, ask, [&](World& world, std::uint64_t nth) {
      world.cm(0).silent = false;
      if (answer == Answer::kPathsThatOnePortRefuses) {
        world.network().fail_call(0, FakeCall::kModifyQp, 3, EINVAL);
      }
      const bool refused = is_refused_one(nth, [&] { poll(world, 0); });
      expect_frames_or_end(world, nth);
      return refused;
    });
  }
}

TEST(Memory, LacksWhenAQueuePairBreaks) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  const auto lose = [](World& world) {
    if (!world.greet()) return false;
    world.network().fail_next_request(0, 0, IBV_WC_RETRY_EXC_ERR);
    if (!world.send(0, 1, {.bytes = 8})) return false;
    world.network().wait_until_idle();
    return true;
  };
  refuse_each({.ports = 2}, lose, [](World& world, std::uint64_t nth) {
    const bool refused = is_refused_one(nth, [&] { poll(world, 0); });
    expect_frames(world, nth);
    return refused;
  });
}

TEST(Memory, LacksWhenTheDeviceRefusesARequest) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  // A large one is told of by the next poll.
  const auto lend = [](World& world) { return world.greet() && world.send(0, 1, {kLarge}); };
  refuse_each({.ports = 2}, lend, [](World& world, std::uint64_t nth) {
    world.network().fail_call(0, FakeCall::kPostSend, 1, EIO);
    const bool refused = is_refused_one(nth, [&] { EXPECT_TRUE(poll(world, 0)); });
    expect_frames(world, nth);
    return refused;
  });
}

// The peer takes a hello whose epoch runs far ahead for nonsense.
TEST(Memory, LacksForLongAndTheNextEpochIsStillTheSecond) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers bring their own allocator";
  constexpr int kTries = 1500;
  LogGuard log;
  log.expect("");
  World world;
  ASSERT_TRUE(begin_held_read(world));
  const std::span<std::byte> memory = world.witness(1).memory_in_use(0);
  Endpoint& endpoint = world.verbs(1).endpoint(0);
  int refused = 0;
  refused_from = allocations + 1;
  endpoint.abandon(memory.data(), memory.size());
  for (int tries = 0; tries < kTries; ++tries) refused += poll(world, 1) ? 0 : 1;
  refused_from = 0;
  EXPECT_EQ(refused, kTries);
  world.witness(1).expect_abandoned(0);
  world.network().release(1);
  EXPECT_TRUE(world.send(0, 1, {.bytes = 8}));
  EXPECT_TRUE(world.settle(0, 1));
  EXPECT_EQ(world.verbs(1).work_counts().epochs, 2u);
  world.close_all();
}

}  // namespace
}  // namespace unisono::verbs::test
