#include "tests/objects/object_bytes.h"

namespace unisono::test {
namespace {

std::byte byte_of(Rank rank, std::uint64_t offset) {
  return static_cast<std::byte>(static_cast<std::uint64_t>(rank) * 101 + offset * 7 +
                                (offset >> 8) * 13 + (offset >> 16) * 29);
}

}  // namespace

ObjectBytes bytes_of(Rank rank, std::uint64_t offset, std::size_t size) {
  ObjectBytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = byte_of(rank, offset + i);
  return bytes;
}

}  // namespace unisono::test
