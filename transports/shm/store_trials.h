// Whether the payload of a ring is written through the caches or past them, by non-temporal stores:
// which is faster depends on the processor and on where the two ranks run (two cores that share no
// cache hand lines over slowly), so it is tried with the first pieces of a ring, and again after
// every kPiecesUntilNext; where an earlier job has left what it learned (trial_memory.h) a ring
// begins with that, and tries after a quarter of those. In between a row of pieces is timed after
// kPiecesUntilCheck, and then ever more (way_checks.h). What a store costs depends on how its line
// was written the time before: pieces of each kind go around the ring before some are timed, short
// ones as far as they get.
//
// The writer marks a piece that is timed, kTrialRow in a row of each kind. The reader times its
// copy of it and tells the writer, in the ring's second control line, the median of a row, in the
// better row; the writer adds its own time and decides for both. The best piece would not do: where
// lines go slowly from cache to cache there are some that have left both of them.
//
// Thread rule: each end belongs to its side of the ring.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/trial_facts.h"
#include "transports/shm/segment.h"
#include "transports/shm/trial_memory.h"
#include "transports/shm/way_checks.h"

namespace unisono::shm {

/// How a piece was written. The first word of its header line holds the bits.
struct PieceStores {
  static constexpr std::uint32_t kStreamed = 1u << 27;  ///< past the caches
  static constexpr std::uint32_t kTrial = 1u << 26;     ///< the reader is to time its copy
  static constexpr std::uint32_t kAnew = 1u << 25;      ///< earlier times of this kind are void
  static constexpr std::uint32_t kAll = kStreamed | kTrial | kAnew;

  std::uint32_t bits = 0;
  bool streamed() const { return (bits & kStreamed) != 0; }
  bool is_trial() const { return (bits & kTrial) != 0; }
  bool is_anew() const { return (bits & kAnew) != 0; }
};

/// Of kPieceSizes; negative where it is never tried.
inline int size_of_piece(std::size_t bytes) {
  return std::min(static_cast<int>(std::bit_width(bytes / kTriedPieceMin)), kPieceSizes) - 1;
}

/// Of one size, until it is tried again.
inline constexpr std::uint32_t kPiecesUntilNext = 20'000;
inline constexpr std::uint32_t kPiecesUntilCheck = 1'000;
/// Most are of one size. (Rings of two cores of an EPYC take 1.9 times as long in its slow state.)
inline constexpr std::uint32_t kPiecesChangedPercent = 150;
/// Before those that are timed: pieces as long as those of long frames are at least go around the
/// largest ring. Shorter ones would take too long to.
inline constexpr std::size_t kSettlingPieceBytes = std::size_t{16} << 10;
inline constexpr auto kSettlingPieces =
    static_cast<std::uint32_t>(kSegmentRingBytesMax / kSettlingPieceBytes);

/// Pieces that are timed in a row.
inline constexpr std::size_t kTrialRow = 8;

/// What pieces of a row took, in ns for a MiB; 0: was not read.
class RowOfTimes {
 public:
  void clear() { count_ = 0; }
  /// Returns the median with the last of the row, else nothing.
  std::optional<std::uint32_t> add(std::uint32_t time);

 private:
  std::array<std::uint32_t, kTrialRow> times_{};
  std::size_t count_ = 0;
};

/// What the reader tells, word by word: for each size the better row, in ns for a MiB; 0: nothing
/// yet.
struct ReaderTimes {
  struct OfSize {
    std::uint32_t trials;  ///< that have been read, ever; stored last
    std::uint32_t cached;
    std::uint32_t streamed;
  };
  OfSize of_size[kPieceSizes];
};

/// The writer's end.
class StoreTrials {
 public:
  /// `memory`: where they begin, and what they decide is noted; null: nothing is known or kept.
  explicit StoreTrials(ReaderTimes* told, TrialMemory* memory = nullptr);

  /// For the next piece, of so many bytes.
  PieceStores next(std::size_t bytes) {
    const int size = size_of_piece(bytes);
    if (size < 0) return {};
    State& state = states_[static_cast<std::size_t>(size)];
    return ++state.pieces <= state.pieces_until ? state.stores : change(state);
  }
  /// What its stores took until they were done, when it was a trial.
  void note(PieceStores stores, std::size_t bytes, Duration took);

 private:
  enum class Phase : std::uint8_t {
    kDecided,
    kSettling,  // pieces of the next row's kind go around the ring
    kTiming,
    kAwaiting,  // the reader's times; meanwhile it goes on as decided before
  };
  struct State {
    Phase phase = Phase::kDecided;
    std::uint32_t pieces = 0;        // in this phase
    std::uint32_t pieces_until = 0;  // `stores` stays so long
    std::uint32_t until_trials = 0;  // pieces before all is tried again
    bool is_check = false;           // what is timed, or awaited
    std::uint32_t rows = 0;          // of these trials that were timed
    std::uint32_t timed = 0;         // pieces, ever
    PieceStores stores;
    PieceStores decided;
    std::uint32_t known = 0;  // what pieces took both ends as it was decided, ns for a MiB; or 0
    WayChecks checks{kPiecesUntilCheck, kPiecesUntilNext, kPiecesChangedPercent};
    RowOfTimes row;                      // that runs
    std::array<std::uint32_t, 2> own{};  // the better row's, ns for a MiB: cached, streamed
  };
  static void enter(State& state, Phase phase, PieceStores stores, std::uint32_t pieces);
  static void hold(State& state, std::uint32_t pieces_until_trials);
  static void begin_trials(State& state);
  PieceStores change(State& state);
  static PieceStores time_piece(State& state);
  void judge(State& state);
  void decide(State& state, const WayTimes<2>& times);
  std::size_t size_of(const State& state) const {
    return static_cast<std::size_t>(&state - states_.data());
  }

  ReaderTimes* told_;
  TrialMemory* memory_;
  std::array<State, kPieceSizes> states_;
};

/// The reader's end.
class StoreTimer {
 public:
  explicit StoreTimer(ReaderTimes* told) : told_(told) {}
  /// What the copy of a piece took that is a trial; zero where it was not copied. `bytes` is what
  /// the writer wrote, at least kTriedPieceMin, or the note is ignored.
  void note(PieceStores stores, std::size_t bytes, Duration took);

 private:
  ReaderTimes* told_;
  std::array<RowOfTimes, kPieceSizes> rows_;
};

}  // namespace unisono::shm
