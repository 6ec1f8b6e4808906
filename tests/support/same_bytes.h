// Any thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace unisono::test {

/// Compared as one block: a sanitizer looks at the block once and not at every byte.
inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace unisono::test
