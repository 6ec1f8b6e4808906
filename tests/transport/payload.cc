#include "tests/transport/payload.h"

#include <algorithm>
#include <cstring>

namespace unisono::test {

std::vector<std::byte> payload_of(Rank from, std::uint64_t sequence, std::size_t bytes) {
  std::vector<std::byte> payload(bytes);
  std::uint64_t state =
      0x9e3779b97f4a7c15ull * (sequence * 64 + static_cast<std::uint64_t>(from) + 1);
  for (std::size_t at = 0; at < bytes; at += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(payload.data() + at, &state, std::min(sizeof state, bytes - at));
  }
  return payload;
}

}  // namespace unisono::test
