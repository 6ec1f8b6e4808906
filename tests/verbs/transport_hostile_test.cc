// A peer that is authenticated and lies: the link to it ends with words, memory stays as it was,
// and the other links of the rank go on. Rank 0 is the victim, rank 1 the test, rank 2 a bystander.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "tests/support/seed.h"
#include "tests/verbs/sum_head.h"
#include "tests/verbs/transport_impostor.h"

namespace unisono::verbs::test {
namespace {

using testing::HasSubstr;

struct Scene {
  explicit Scene(bool has_sums = false) : impostor(1, 3), world(shape(has_sums)) {
    impostor.join(world);
    world.pause(1);
    EXPECT_TRUE(world.send(0, 2, {.bytes = 8}));
    EXPECT_TRUE(world.send(2, 0, {.bytes = 8}));
    EXPECT_TRUE(world.settle(0, 2) && world.settle(2, 0));
  }
  ~Scene() { impostor.fixture.reset(); }

  WorldShape shape(bool has_sums) const {
    WorldShape shape = impostor.shape();
    shape.options.checksum = has_sums;
    return shape;
  }
  // The victim has noticed and says so; everyone else is served as before.
  void expect_end(ErrorCode code, const std::string& words = "") {
    const Status cause = world.end_of(0, 1);
    EXPECT_EQ(cause.code(), code) << cause.message();
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_THAT(cause.message(), HasSubstr("rank 1"));
    EXPECT_THAT(cause.message(), HasSubstr(words));
    expect_others_go_on();
  }
  void expect_others_go_on() {
    for (int frame = 0; frame < 5; ++frame) {
      ASSERT_TRUE(world.send(0, 2, {.bytes = kLarge}));
      ASSERT_TRUE(world.send(2, 0, {.bytes = 1000}));
    }
    ASSERT_TRUE(world.settle(0, 2));
    ASSERT_TRUE(world.settle(2, 0));
    EXPECT_FALSE(world.has_ended(0, 2));
    EXPECT_FALSE(world.has_ended(2, 0));
  }

  const LogGuard log;
  Impostor impostor;
  World world;
};

TEST(HostileMessage, GarbageEndsTheLink) {
  for (const std::string& garbage :
       {std::string("hello"), std::string(1, '\0'), std::string(4096, '\xff')}) {
    Scene scene;
    scene.impostor.say(0, garbage);
    scene.expect_end(ErrorCode::kProtocol);
    EXPECT_TRUE(scene.impostor.was_given_up_by(0));
  }
}

TEST(HostileMessage, OfNoBytesEndsTheLink) {
  Scene scene;
  scene.impostor.say(0, "");
  scene.expect_end(ErrorCode::kProtocol);
}

TEST(HostileMessage, ThatIsTooLongEndsTheLink) {
  Scene scene;
  scene.impostor.say(0, std::string(kLinkMessageBytesMax + 1, 'x'));
  scene.expect_end(ErrorCode::kProtocol);
}

TEST(HostileMessage, FrameBesideTheQueuePairsEndsTheLink) {
  for (const FrameKind kind : {FrameKind::kEager, FrameKind::kData, FrameKind::kLeft}) {
    Scene scene;
    FrameHeader header;
    header.kind = kind;
    header.total_bytes = 100;
    scene.impostor.send_frame(0, header, 100);
    scene.expect_end(ErrorCode::kProtocol, "beside its queue pairs");
    EXPECT_EQ(scene.world.witness(0).count(1), 0u);
  }
}

TEST(HostileMessage, TruncatedHelloEndsTheLink) {
  for (const std::size_t bytes : {std::size_t{7}, std::size_t{20}, std::size_t{80}}) {
    Scene scene;
    const std::string hello = encode(scene.impostor.right_hello(scene.world, 0));
    scene.impostor.say(0, std::string_view(hello).substr(0, bytes));
    scene.expect_end(ErrorCode::kProtocol);
  }
}

struct Lie {
  const char* name;
  void (*tell)(Hello&);
  const char* words;
  ErrorCode code = ErrorCode::kProtocol;
};

class HostileHelloWith : public testing::TestWithParam<Lie> {};
INSTANTIATE_TEST_SUITE_P(
    Lies, HostileHelloWith,
    testing::Values(
        Lie{"consumed_beyond", [](Hello& h) { h.consumed = 64; }, "consumed what was not sent"},
        Lie{"consumed_far_beyond", [](Hello& h) { h.consumed = kPositionMax; }, "consumed"},
        Lie{"read_beyond", [](Hello& h) { h.read = 1; }, "read what was not lent"},
        Lie{"read_far_beyond", [](Hello& h) { h.read = kPositionMax; }, "read what was not lent"},
        Lie{"ring_of_another_size", [](Hello& h) { h.ring_bytes += 4096; }, "its ring has"},
        Lie{"no_queue_pairs", [](Hello& h) { h.queue_pairs.clear(); }, "no port left",
            ErrorCode::kUnsupported},
        Lie{"other_sums", [](Hello& h) { h.has_sums = !h.has_sums; },
            "UNISONO_CHECKSUM is on there and off here", ErrorCode::kMismatch}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(HostileHelloWith, EndsTheLink) {
  Scene scene;
  Hello hello = scene.impostor.right_hello(scene.world, 0);
  GetParam().tell(hello);
  scene.impostor.say(0, encode(hello));
  scene.expect_end(GetParam().code, GetParam().words);
}

TEST(HostileHello, SecondOneMayNotTakeBackWhatTheFirstSaid) {
  for (const bool consumed : {false, true}) {
    Scene scene;
    ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
    // The victim writes two records and lends one payload, which the impostor acknowledges.
    ASSERT_NE(scene.world.try_send(0, 1, {.bytes = 8}), PostResult::kFull);
    ASSERT_EQ(scene.world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
    scene.world.turns(20);
    scene.world.network().wait_until_idle();
    scene.impostor.immediate(encode(ImmediateKind::kConsumed, 4));
    scene.impostor.immediate(encode(ImmediateKind::kRead, 1));
    ASSERT_TRUE(scene.world.pump_until(
        [&] { return scene.world.witness(0).tokens_outstanding() == 0; }, "the buffer"));
    Hello again = scene.impostor.right_hello(scene.world, 0);
    again.epoch += 1;
    again.consumed = consumed ? 0 : 4 * kLine;
    again.read = consumed ? 1 : 0;
    scene.impostor.say(0, encode(again));
    scene.expect_end(ErrorCode::kProtocol, consumed ? "consumed" : "unread");
  }
}

TEST(HostileHello, ReadyForAnotherEpochMeansNothing) {
  Scene scene;
  const Hello hello = scene.impostor.right_hello(scene.world, 0);
  scene.impostor.say(0, encode(hello));
  scene.impostor.say(0, encode_ready(hello.epoch + 7));
  const std::uint64_t before = scene.world.verbs(0).work_counts().writes;
  ASSERT_NE(scene.world.try_send(0, 1, {.bytes = 8}), PostResult::kFull);
  scene.world.turns(200);
  EXPECT_EQ(scene.world.verbs(0).work_counts().writes, before) << "nobody is ready to receive";
  EXPECT_FALSE(scene.world.has_ended(0, 1));
  scene.expect_others_go_on();
}

TEST(HostileHello, LeavingOutALentPayloadEndsTheLink) {
  Scene scene;
  ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
  // A lent frame whose read the victim cannot finish: its host is held.
  scene.world.network().hold(0);
  FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(kLarge);
  header.total_bytes = kLarge;
  header.reserved = static_cast<std::uint16_t>(RecordKind::kLent);
  Source source;
  source.address = scene.impostor.fixture->address(0);
  source.keys.fill(scene.impostor.fixture->mr->rkey);
  std::memcpy(scene.impostor.fixture->memory.data(), &header, sizeof header);
  std::memcpy(scene.impostor.fixture->memory.data() + kLine, &source, sizeof source);
  const Hello& theirs = scene.impostor.hello_of(0);
  scene.impostor.write(theirs.ring_address, theirs.ring_keys[0], 2 * kLine,
                       encode(ImmediateKind::kWritten, 2));
  ASSERT_TRUE(scene.world.pump_until(
      [&] { return !scene.world.witness(0).memory_in_use(1).empty(); }, "the frame's beginning"));
  scene.world.witness(0).expect_abandoned(1);
  Hello again = scene.impostor.right_hello(scene.world, 0);
  again.epoch += 1;
  scene.impostor.say(0, encode(again));
  const Status cause = scene.world.end_of(0, 1);
  EXPECT_EQ(cause.code(), ErrorCode::kProtocol);
  EXPECT_THAT(cause.message(), HasSubstr("leaves out payloads"));
  scene.world.network().release(0);
  scene.expect_others_go_on();
}

TEST(HostileGoodbye, ThatPromisesMoreThanCameEndsTheLinkAllTheSame) {
  // Beyond the ring, and within it where nothing was written.
  for (const bool is_possible : {false, true}) {
    Scene scene;
    ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
    scene.impostor.say(0, encode_leaving(is_possible ? 1 << 12 : 1 << 20));
    scene.impostor.leave();
    if (is_possible) {
      scene.expect_end(ErrorCode::kRankFailed, "the end of what it sent did not come");
    } else {
      scene.expect_end(ErrorCode::kProtocol);
    }
  }
}

TEST(HostileImmediate, OfNoKindOrBeyondWhatThereIsEndsTheLink) {
  const std::uint32_t lines = static_cast<std::uint32_t>(VerbsOptions().ring_bytes / kLine);
  for (const std::uint32_t bits :
       {0xc0000000u, 0xffffffffu, encode(ImmediateKind::kWritten, lines + 1),
        encode(ImmediateKind::kWritten, kImmediateMask), encode(ImmediateKind::kConsumed, 1),
        encode(ImmediateKind::kConsumed, kImmediateMask), encode(ImmediateKind::kRead, 1),
        encode(ImmediateKind::kRead, kImmediateMask)}) {
    Scene scene;
    ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
    scene.impostor.immediate(bits);
    scene.expect_end(ErrorCode::kProtocol);
  }
}

TEST(HostileImmediate, MorePiecesThanGrantedEndTheLink) {
  Scene scene;
  ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
  // Half a record, announced over and over: nothing is ever consumed.
  FrameHeader header;
  header.payload_bytes = 1000;
  header.reserved = static_cast<std::uint16_t>(RecordKind::kWhole);
  std::memcpy(scene.impostor.fixture->memory.data(), &header, sizeof header);
  const Hello& theirs = scene.impostor.hello_of(0);
  scene.impostor.write(theirs.ring_address, theirs.ring_keys[0], kLine,
                       encode(ImmediateKind::kWritten, 1));
  for (int piece = 0; piece < 300 && !scene.world.has_ended(0, 1); ++piece) {
    scene.impostor.immediate(encode(ImmediateKind::kWritten, 1));
    scene.impostor.fixture->poll(1);
    scene.world.turn();
  }
  scene.expect_end(ErrorCode::kProtocol, "more pieces");
}

TEST(HostileRing, RubbishRecordsEndTheLink) {
  const unisono::test::SeedTrace trace;
  auto random = unisono::test::random_stream(61);
  for (int round = 0; round < 10; ++round) {
    const bool has_sums = round % 2 == 1;
    Scene scene(has_sums);
    ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
    auto& memory = scene.impostor.fixture->memory;
    for (std::size_t i = 0; i < 4096; ++i) memory[i] = static_cast<std::byte>(random());
    if (has_sums) sum_head_at(std::span(memory).first(4096), 0);
    const Hello& theirs = scene.impostor.hello_of(0);
    scene.impostor.write(theirs.ring_address, theirs.ring_keys[0], 4096,
                         encode(ImmediateKind::kWritten, 64));
    scene.expect_end(ErrorCode::kProtocol);
  }
}

TEST(HostileRing, LentPayloadThatIsNotThereEndsTheLink) {
  for (const bool has_sums : {false, true}) {
    Scene scene(has_sums);
    ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
    RecordHead head;
    head.header.payload_bytes = static_cast<std::uint32_t>(kLarge);
    head.header.total_bytes = kLarge;
    head.header.reserved = static_cast<std::uint16_t>(RecordKind::kLent);
    head.source.address = 4096;
    head.source.keys.fill(0x1234567);
    if (has_sums) head.sums.header = sum_of(head, 0);
    std::memcpy(scene.impostor.fixture->memory.data(), &head, sizeof head);
    const Hello& theirs = scene.impostor.hello_of(0);
    scene.impostor.write(theirs.ring_address, theirs.ring_keys[0], sizeof head,
                         encode(ImmediateKind::kWritten, 2));
    scene.expect_end(ErrorCode::kProtocol, "REM_ACCESS_ERR");
  }
}

TEST(HostileAccess, WithAWrongKeyOrPlaceHarmsNothing) {
  for (int attempt = 0; attempt < 4; ++attempt) {
    Scene scene;
    ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
    // A buffer that is lent to the bystander and so registered, and the ring's neighbourhood.
    std::vector<std::byte> secret(kLarge, std::byte{0x5a});
    FrameHeader header;
    header.payload_bytes = header.total_bytes = static_cast<std::uint32_t>(kLarge);
    const Hello& theirs = scene.impostor.hello_of(0);
    std::fill_n(scene.impostor.fixture->memory.begin(), 4096, std::byte{0xff});
    const auto place = reinterpret_cast<std::uint64_t>(secret.data());
    if (attempt == 0) scene.impostor.write(theirs.ring_address, theirs.ring_keys[0] + 1, 4096);
    if (attempt == 1) {
      scene.impostor.write(theirs.ring_address + theirs.ring_bytes, theirs.ring_keys[0], 4096);
    }
    if (attempt == 2) scene.impostor.write(place, theirs.ring_keys[0], 4096);
    if (attempt == 3) scene.impostor.read(place, theirs.ring_keys[0], 4096);
    const auto done = scene.impostor.fixture->poll(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(std::all_of(secret.begin(), secret.end(),
                            [](std::byte b) { return b == std::byte{0x5a}; }));
    // The device has broken the victim's queue pair: the victim hears of it when it uses it.
    scene.world.try_send(0, 1, {.bytes = 8});
    scene.expect_end(ErrorCode::kRankFailed, "fake0 port 1");
  }
}

TEST(HostileAccess, LentMemoryIsOnlyReadable) {
  Scene scene;
  ASSERT_TRUE(scene.impostor.meet(scene.world, 0));
  ASSERT_EQ(scene.world.try_send(0, 1, {.bytes = kLarge}), PostResult::kPending);
  scene.world.turns(20);
  scene.world.network().wait_until_idle();
  scene.world.network().see_what_was_written();
  Source source;
  std::memcpy(&source, scene.impostor.fixture->memory.data() + 256 * 1024 + kLine, sizeof source);
  ASSERT_NE(source.address, 0u);
  scene.impostor.write(source.address, source.keys[0], 4096);
  EXPECT_EQ(scene.impostor.fixture->poll(2).back().status, IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace unisono::verbs::test
