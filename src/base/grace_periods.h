// How long what may still come is waited for before this rank goes by what it knows: one constant
// for each meaning.
#pragma once

#include <algorithm>
#include <chrono>

namespace unisono::grace {

/// A call that has not moved for so long lets its peers know which call it is in.
inline constexpr std::chrono::milliseconds kProbeAfter{20};
/// A call that has not moved for so long lets the arbiter know, so that a deadline elsewhere can
/// tell who had arrived.
inline constexpr std::chrono::milliseconds kReportAfter{500};
/// What a rank sent before it left may take so long to be seen.
inline constexpr std::chrono::milliseconds kAfterGoodbye{200};
/// It may take so many looks as well, about one a millisecond: who hardly gets a processor has seen
/// little in that time.
inline constexpr int kLooksAfterGoodbye = 64;
/// The arbiter's decision on a passed deadline or on calls that differ.
inline constexpr std::chrono::seconds kDecision{1};
/// The job's own words on a failure that this rank has seen only the effect of: a word that another
/// raised, a peer that cannot be reached, streams that were let go.
inline constexpr std::chrono::milliseconds kCause{300};
/// A rank that went away before all had met, or the arbiter then, may be started again.
inline constexpr std::chrono::seconds kReturn{1};
/// A standby that is asked to take the arbiter's place waits so long for its own rank to lose the
/// arbiter too.
inline constexpr std::chrono::milliseconds kOwnRank{1000};
/// Whoever asks a standby goes to the next one when it has not answered for so long: where a
/// hundred ranks share two cores, it takes a while.
inline constexpr std::chrono::seconds kStandbyAnswer{2};
static_assert(kOwnRank < kStandbyAnswer, "a standby is taken for dead before it has answered");
/// Ranks that have not come to a standby so long after it has taken over have failed.
inline constexpr std::chrono::seconds kSuccession{3};
/// The same for any silence limit: where that is long, ranks lose a silent arbiter at different
/// times.
constexpr std::chrono::milliseconds succession_time(std::chrono::milliseconds silence) {
  return std::max<std::chrono::milliseconds>(kSuccession, silence / 2);
}
/// A rank that has lost the arbiter looks so long for who holds it: on a busy host standbys answer
/// late.
inline constexpr std::chrono::seconds kSeek{10};
/// The same for any silence limit: where that is long, the rank may have lost at once an arbiter
/// that a standby misses after that silence alone, and then waits for.
constexpr std::chrono::milliseconds seek_time(std::chrono::milliseconds silence) {
  return std::max<std::chrono::milliseconds>(kSeek, silence + succession_time(silence));
}

}  // namespace unisono::grace
