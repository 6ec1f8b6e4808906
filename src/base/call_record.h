// The signature of a call, as it travels in the first cache line of every operation: what ranks
// must agree on, in full, so that both sides of a disagreement can be printed.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "unisono/types.h"

namespace unisono {

struct CallRecord {
  std::uint8_t collective = 0;
  std::uint8_t type = 0;
  std::uint8_t op = 0;         ///< and the flags below
  std::uint8_t algorithm = 0;  ///< the hint's index + 1, or one of the values below
  std::int32_t root = 0;       ///< -1 where the collective has none
  std::uint64_t count = 0;     ///< elements, where the collective's ranks must agree on it; else 0
  std::uint32_t history = 0;   ///< digest of the communicator's collectives before this one
  std::uint32_t details = 0;   ///< hash of a user operator's name and of counts that all ranks give

  friend bool operator==(const CallRecord& a, const CallRecord& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
};
/// Stands for the sequence of sends and receives, which have none that ranks agree on: in reports,
/// and in probes of peers that may have left.
inline constexpr std::uint64_t kPointToPointSequence = ~std::uint64_t{0};
/// What else decides which plan a call runs, or in how many a longer one goes; above every OpKind.
inline constexpr std::uint8_t kRecordExact = 0x10;
inline constexpr std::uint8_t kRecordPart = 0x20;  ///< of a call on device memory
inline constexpr std::uint8_t kRecordCanonical = 0x40;
inline constexpr std::uint8_t kRecordNotCommutative = 0x80;
/// As `algorithm`: the selection chooses, there is no hint.
inline constexpr std::uint8_t kRecordSelected = 0;
/// As `algorithm`: the buffers are device memory, and the ranks exchange metadata first.
inline constexpr std::uint8_t kRecordOnDevice = 253;
/// As `algorithm`: the hint names none that this rank knows.
inline constexpr std::uint8_t kRecordUnknownAlgorithm = 254;
/// As `algorithm`: the hint is "native", which is no algorithm of the catalogue.
inline constexpr std::uint8_t kRecordNative = 255;
inline constexpr std::uint8_t kRecordFlags =
    kRecordExact | kRecordPart | kRecordCanonical | kRecordNotCommutative;
static_assert(kOpKindCount <= kRecordExact);

static_assert(sizeof(CallRecord) == 24 && std::is_trivially_copyable_v<CallRecord>);

/// "all_reduce(count 1024, float32, sum)" for messages; safe on any 24 bytes from a wire.
std::string describe(const CallRecord& record);
/// The same with the operation's number in its communicator.
std::string describe(const CallRecord& record, std::uint64_t operation);

}  // namespace unisono
