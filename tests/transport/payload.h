// What ranks send to each other in tests of transports. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/types.h"

namespace unisono::test {

/// The payload of the frame `sequence` of rank `from`.
std::vector<std::byte> payload_of(Rank from, std::uint64_t sequence, std::size_t bytes);

}  // namespace unisono::test
