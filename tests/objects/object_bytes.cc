#include "tests/objects/object_bytes.h"

namespace unisono::test {
namespace {

std::byte byte_of(Rank rank, std::uint64_t offset) {
  return static_cast<std::byte>(static_cast<std::uint64_t>(rank) * 101 + offset * 7 +
                                (offset >> 8) * 13 + (offset >> 16) * 29);
}

}  // namespace

void make_bytes(Rank rank, std::uint64_t offset, std::span<std::byte> room) {
  for (std::size_t i = 0; i < room.size(); ++i) room[i] = byte_of(rank, offset + i);
}

ObjectBytes object_of(Rank rank, std::size_t size) {
  ObjectBytes object(size);
  make_bytes(rank, 0, object);
  return object;
}

}  // namespace unisono::test
