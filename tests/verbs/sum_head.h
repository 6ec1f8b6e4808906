// What a hostile sender does to a ring whose records have checksums: XXH3 is no secret. Used by one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transports/verbs/record.h"

namespace unisono::verbs::test {

/// The head at `position` of the ring, whatever is there, has the sum that is right for it.
inline void sum_head_at(std::span<std::byte> ring, std::uint64_t position) {
  std::byte* const at = ring.data() + position % ring.size();
  const std::size_t until_end = ring.size() - position % ring.size();
  RecordHead head;
  std::memcpy(&head.header, at, sizeof head.header);
  if (head.header.reserved == static_cast<std::uint16_t>(RecordKind::kSkip) ||
      until_end < sizeof head) {
    head.header.total_bytes = sum_of_skip(head.header, position);
    std::memcpy(at, &head.header, sizeof head.header);
  } else {
    std::memcpy(&head, at, sizeof head);
    head.sums.header = sum_of(head, position);
    std::memcpy(at, &head, sizeof head);
  }
}

}  // namespace unisono::verbs::test
