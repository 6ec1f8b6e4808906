// Frames of several pieces of a message, as endpoints that lend them ask for.
#include "tests/engine/messenger_fixture.h"

namespace unisono::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kFourPieces = 3 * kFramePayloadMax + 100;

FrameHeader frame_of_pieces(std::size_t first, std::size_t count) {
  FrameHeader header = piece(0, kFourPieces, first);
  header.payload_bytes = static_cast<std::uint32_t>(
      std::min(count * kFramePayloadMax, kFourPieces - static_cast<std::size_t>(header.offset)));
  return header;
}

TEST(MessengerPieces, FrameOfSeveralPiecesIsRefusedWhereOneHasCome) {
  for (const std::size_t come : {0u, 1u, 2u}) {
    Fixture fresh;
    Bytes target(kFourPieces);
    EXPECT_FALSE(
        fresh.messenger.receive(1, key_of(0), {}, target.data(), target.size(), fresh.owner, 0));
    EXPECT_NE(fresh.place(1, piece(0, kFourPieces, come)), nullptr);
    EXPECT_EQ(fresh.place(1, frame_of_pieces(0, 3)), nullptr) << come;
    EXPECT_THAT(fresh.events.violations, ElementsAre(HasSubstr("same piece of a message twice")));
  }
}

TEST(MessengerPieces, FramesOfSeveralPiecesMayComeInAnyOrder) {
  for (const bool in_order : {true, false}) {
    Fixture fresh;
    Bytes target(kFourPieces);
    EXPECT_FALSE(
        fresh.messenger.receive(1, key_of(0), {}, target.data(), target.size(), fresh.owner, 0));
    const FrameHeader first = frame_of_pieces(0, 2), rest = frame_of_pieces(2, 2);
    EXPECT_NE(fresh.place(1, in_order ? first : rest), nullptr);
    EXPECT_NE(fresh.place(1, in_order ? rest : first), nullptr);
    fresh.received(1, first);
    EXPECT_THAT(fresh.owner.done, IsEmpty());
    fresh.received(1, rest);
    EXPECT_THAT(fresh.owner.done, SizeIs(1));
  }
}

}  // namespace
}  // namespace unisono::test
