// The collectives that this rank has made on one communicator. What a peer says of a call is
// compared with them, also when the call is over here. A digest of all of them is part of the next
// call's record: ranks that once made different calls never again find their records equal.
//
// Thread rule: one thread at a time (the engine's lock).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/call_record.h"

namespace unisono {

/// A call and its number in the communicator, as ranks tell them each other.
struct NumberedCall {
  std::uint64_t sequence = 0;
  CallRecord record;
};

class CallHistory {
 public:
  /// The number of the next call.
  std::uint64_t next() const { return next_; }
  /// What the next call's record carries as its history.
  std::uint32_t digest() const { return digest_; }

  /// The next call is this one; its number.
  std::uint64_t add(const CallRecord& record) {
    latest_[next_ % latest_.size()] = record;
    digest_ = digest_of(record);
    return next_++;
  }

  /// What follows are steps of split(), which are no other's calls though they look alike.
  void note_split() { digest_ ^= 0x53504c54; }

  /// Null where the call is not made yet, or so long ago that it is forgotten.
  const CallRecord* find(std::uint64_t sequence) const {
    if (sequence >= next_ || next_ - sequence > latest_.size()) return nullptr;
    return &latest_[sequence % latest_.size()];
  }

  /// The latest calls, the oldest first.
  std::vector<NumberedCall> latest() const {
    std::vector<NumberedCall> calls;
    const std::uint64_t first = next_ > latest_.size() ? next_ - latest_.size() : 0;
    for (std::uint64_t i = first; i < next_; ++i) calls.push_back({i, *find(i)});
    return calls;
  }

 private:
  // A record holds the digest of what came before it, so this one is of everything.
  static std::uint32_t digest_of(const CallRecord& record) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    std::uint64_t words[3];
    std::memcpy(words, &record, sizeof words);
    std::uint64_t digest = kOdd;
    for (const std::uint64_t word : words) {
      digest = (digest ^ word) * kOdd;
      digest ^= digest >> 32;
    }
    return static_cast<std::uint32_t>(digest);
  }

  std::uint64_t next_ = 0;
  std::uint32_t digest_ = 0;
  std::array<CallRecord, 64> latest_;  // by number modulo size
};

}  // namespace unisono
