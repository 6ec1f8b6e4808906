// What trials of the ways to move bytes between ranks of a host have shown: of native calls by
// collective and size (native/access_trials.h), of messages (transports/shm/loan_trials.h) and of a
// ring's pieces (transports/shm/store_trials.h) by size. Plain words, so that they may lie in
// shared memory and in a file.
//
// Thread rule: values.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/access_path.h"
#include "base/host_facts.h"
#include "unisono/types.h"

namespace unisono {

/// What of a native call is tried, in this order; never kAutomatic.
inline constexpr std::array<AccessPath, 4> kTriedPaths{
    AccessPath::kMapped, AccessPath::kStreamed, AccessPath::kSingleCopy, AccessPath::kWindow};

/// Calls are tried by size: from more than so much on, each size at most twice the one before; the
/// last one has no upper bound.
inline constexpr std::size_t kTriedCallMin = 512;
inline constexpr int kCallSizes = 15;
/// Negative where it is never tried.
constexpr int size_of_call(std::size_t bytes) {
  if (bytes <= kTriedCallMin) return -1;
  return std::min(static_cast<int>(std::bit_width((bytes - 1) / kTriedCallMin)) - 1,
                  kCallSizes - 1);
}
/// But for the last one.
constexpr std::size_t largest_of_size(int size) { return 2 * kTriedCallMin << size; }

/// Messages: from 128 KiB on, from 256 KiB, ... from 8 MiB. Shorter ones never are.
inline constexpr std::size_t kTriedMessageMin = std::size_t{128} << 10;
inline constexpr int kMessageSizes = 7;
inline constexpr std::array<std::string_view, 2> kMessageWays{"ring", "lent"};

/// Pieces: from 1 KiB on, from 2 KiB, from 4 KiB, from 8 KiB. Shorter ones never are.
inline constexpr std::size_t kTriedPieceMin = 1024;
inline constexpr int kPieceSizes = 4;
inline constexpr std::array<std::string_view, 2> kPieceWays{"cached", "streamed"};

/// Of what is tried, and how it is timed: what other trials have shown is not known.
inline constexpr int kTrialsVersion = 9;

/// By collective and size.
using CallTimes =
    std::array<std::array<WayTimes<kTriedPaths.size()>, kCallSizes>, kCollectiveCount>;

/// Of one host. What is not known is 0.
struct TrialFacts {
  HostFacts host;  ///< by which calls begin that were not tried yet
  CallTimes calls;
  std::array<WayTimes<kMessageWays.size()>, kMessageSizes> messages;
  std::array<WayTimes<kPieceWays.size()>, kPieceSizes> pieces;

  bool operator==(const TrialFacts&) const = default;
};

/// Calls `act` with what each two have of the same size, in order.
template <typename Facts, typename OtherFacts, typename Act>
void for_each_pair(Facts& one, OtherFacts& other, const Act& act) {
  for (std::size_t c = 0; c < one.calls.size(); ++c) {
    for (std::size_t i = 0; i < one.calls[c].size(); ++i) act(one.calls[c][i], other.calls[c][i]);
  }
  for (std::size_t i = 0; i < one.messages.size(); ++i) act(one.messages[i], other.messages[i]);
  for (std::size_t i = 0; i < one.pieces.size(); ++i) act(one.pieces[i], other.pieces[i]);
}

inline bool knows_any(const TrialFacts& facts) { return !(facts == TrialFacts{}); }

/// What `learned` knows takes the place of what `facts` knew.
inline void learn(TrialFacts& facts, const TrialFacts& learned) {
  for_each_pair(facts, learned, [](auto& known, const auto& times) {
    if (has_times(times)) known = times;
  });
  if (learned.host.are_known()) facts.host = learned.host;
}

}  // namespace unisono
