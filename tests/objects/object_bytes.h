// Objects whose bytes tell rank and offset, and what an expected failure looks like.
// Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

#include "unisono/objects.h"

namespace unisono::test {

/// The bytes of the object of `rank` from `offset` on; neighbours differ.
ObjectBytes bytes_of(Rank rank, std::uint64_t offset, std::size_t size);

inline ObjectBytes object_of(Rank rank, std::size_t size) { return bytes_of(rank, 0, size); }
inline void write_bytes(Rank rank, std::uint64_t offset, std::span<std::byte> room) {
  const ObjectBytes made = bytes_of(rank, offset, room.size());
  std::copy(made.begin(), made.end(), room.begin());
}

/// The Error that `call` throws; one of code kOk when it throws none.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Status());
}

}  // namespace unisono::test
