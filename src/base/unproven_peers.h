// Who makes room when all places for connections that have not authenticated themselves are taken.
// Refusing the newcomer would let strangers keep the members out for good: they only have to come
// back. So the least promising goes: one that has not even greeted before one that has, of the
// source that holds most places, the longest stalled. Everyone has one short turn first: a member
// needs one round trip, and many members that come at once must not drive each other out.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/clock.h"

namespace unisono {

/// How many may wait at a listener at a time, and how long each may take. A transport counts only
/// the time in which it is polled: a rank that computes has not looked.
inline constexpr std::size_t kStrangersMax = 64;
inline constexpr Duration kStrangerTime = std::chrono::seconds(2);
/// Who does not know the key hangs up when it has seen the proof, and so does one whose patience
/// has ended; the latter cannot be when the proof came so soon. One that needed the place for
/// somebody else resets the connection.
inline constexpr Duration kPromptProof = std::chrono::seconds(1);
static_assert(kPromptProof < kStrangerTime);

struct UnprovenPeer {
  std::string_view source;  ///< as source_of() names it
  bool greeted = false;     ///< has sent a valid greeting
  Duration stalled{};       ///< since it came, or greeted
};

/// How long it may hold its place while others want it: a greeting comes right behind the
/// connection, the proof a round trip and a turn on a busy processor later.
constexpr Duration unproven_turn(bool greeted) {
  return std::chrono::milliseconds(greeted ? 200 : 10);
}
inline constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

/// The index of the one that goes; kNobody while none has had its turn.
std::size_t least_promising(std::span<const UnprovenPeer> peers);

}  // namespace unisono
