// How long what may still come is waited for before this rank goes by what it knows: one constant
// for each meaning.
#pragma once

#include <algorithm>
#include <chrono>

namespace unisono::grace {

/// A call that has not moved for so long lets its peers know which call it is in, ...
inline constexpr std::chrono::milliseconds kProbeAfter{20};
/// ... and after this the arbiter, so that a deadline elsewhere can tell who had arrived.
inline constexpr std::chrono::milliseconds kReportAfter{500};
/// What a rank sent before it left may take so long to be seen, ...
inline constexpr std::chrono::milliseconds kAfterGoodbye{200};
/// ... and so many looks, about one a millisecond: who hardly gets a processor has seen little.
inline constexpr int kLooksAfterGoodbye = 64;
/// The arbiter's decision on a passed deadline or on calls that differ.
inline constexpr std::chrono::seconds kDecision{1};
/// The job's own words on a failure that this rank has seen only the effect of: a word that another
/// raised, a peer that cannot be reached, streams that were let go.
inline constexpr std::chrono::milliseconds kCause{300};
/// A rank that went away before all had met, or the arbiter then, may be started again.
inline constexpr std::chrono::seconds kReturn{1};
/// A standby that is asked to take the arbiter's place finds out that its own rank has lost it too,
inline constexpr std::chrono::milliseconds kOwnRank{1000};
/// ... and whoever asks goes to the next one when it does not answer: where a hundred ranks share
/// two cores, it takes a while.
inline constexpr std::chrono::seconds kStandbyAnswer{2};
static_assert(kOwnRank < kStandbyAnswer, "a standby is taken for dead before it has answered");
/// Once it has taken over, ranks that do not come to it have failed; ...
inline constexpr std::chrono::seconds kSuccession{3};
/// ... where the silence limit is long they lose an arbiter that is silent at different times.
constexpr std::chrono::milliseconds succession_time(std::chrono::milliseconds silence) {
  return std::max<std::chrono::milliseconds>(kSuccession, silence / 2);
}
/// So long a rank that has lost the arbiter looks for who holds it: on a busy host standbys answer
/// late; ...
inline constexpr std::chrono::seconds kSeek{10};
/// ... where the silence limit is long it may have lost one at once that a standby misses after
/// that silence alone, and then waits for.
constexpr std::chrono::milliseconds seek_time(std::chrono::milliseconds silence) {
  return std::max<std::chrono::milliseconds>(kSeek, silence + succession_time(silence));
}

}  // namespace unisono::grace
