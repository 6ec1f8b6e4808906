// Who stopped first, in what, and who waits for whom: from the records of a job's ranks, aligned by
// the numbers of their calls. Ranks whose communicator has begun fewer collectives have not arrived
// in the one that the others are in.
//
// Thread rule: pure functions on values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "recorder/record_reader.h"

namespace unisono::recorder {

/// What is known of a rank's process now.
enum class Life : std::uint8_t {
  kUnknown,  ///< it is on another host or of another boot, or not to be seen
  kRuns,
  kHeld,  ///< by SIGSTOP or a debugger
  kGone,
};

struct Witness {
  RankRecord record;
  Life life = Life::kUnknown;

  /// Gone without leaving its job and without a failure of its own: it was ended.
  bool was_ended() const;
  /// It makes no step, in a call or outside.
  bool stands_still() const { return was_ended() || life == Life::kHeld; }
};

/// How one rank stands. Ranks are those of the world.
struct Standing {
  Rank rank = 0;
  const Witness* witness = nullptr;    ///< whose record tells so; never null in a verdict
  const RecordedCall* call = nullptr;  ///< which holds it up, or its last; null: it has made none
  bool is_held_up = false;             ///< the call runs, or has failed
  bool is_told = false;                ///< by the job: its call has failed and names a rank
  std::vector<Rank> waits_for;         ///< in order; of those that are known
  int unknown = 0;                     ///< members of the call that no record here tells of

  /// It may compute: its calls in flight are asynchronous.
  bool has_only_started() const {
    return call != nullptr && call->state == EntryState::kStarted && call->is_asynchronous;
  }
};

struct Verdict {
  enum class Kind : std::uint8_t {
    kIdle,      ///< nobody is in a call
    kFinished,  ///< all ranks have left the job, and none with a failure
    kBusy,      ///< all that records tell of have arrived in the calls that run
    kMissing,   ///< the first of `first` lives, or may, and has not arrived
    kStopped,   ///< the first of `first` was ended, has left or has failed
    kCycle,     ///< ranks wait for each other: `first` in a ring
  };
  Kind kind = Kind::kIdle;
  std::vector<Rank> first;          ///< who is waited for and waits for nobody; the cause in front
  std::vector<Standing> standings;  ///< by rank; refers to the witnesses and their calls

  /// Null where no record tells of the rank.
  const Standing* find(Rank rank) const;
};

/// `witnesses` are of one job, one for each rank at most, and outlive what is returned.
Verdict blame(std::span<const Witness> witnesses);

}  // namespace unisono::recorder
