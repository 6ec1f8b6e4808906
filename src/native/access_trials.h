// How a rank's data best get to the others of its host depends on the processor, on where the ranks
// run and on the size; so the first calls of each collective and size try the paths in turn, and
// the rest go on with the fastest. Of more than 1 MiB:
//
//   call        0 | 1 2     3 4       5 6         | 7 ... 12   | 13 14  | 15 ...
//   path   mapped | mapped  streamed  single copy | once more  | mapped | the fastest
//
// Shorter calls are tried in longer rows: 60 calls of those that fit a cell, never by single copy;
// 28 up to 1 MiB, where what can be read in place is tried through the window, too, because two
// members that take turns (shared_cells.h) can be faster by that. Some thousand calls later all are
// tried again. Blocks of unequal length are not tried. A path's time is the median of its trials in
// a row (of two the less), without the wait for ranks that come late, in the better row, on the
// rank where that is the most.
//
// All members choose alike without asking each other. Each writes its times beside its cells, and
// what a member wrote in call s all the others see when call s + 3 begins, because everyone has
// been seen in s + 1 by then (shared_cells.h). Should they choose differently all the same, nothing
// is lost but time: the path is each owner's own, told with every call.
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/access_path.h"
#include "base/clock.h"
#include "base/collective.h"
#include "transports/shm/segment_group.h"

namespace unisono::native {

/// What is tried, in this order; never kAutomatic.
inline constexpr std::array<AccessPath, 4> kTriedPaths{
    AccessPath::kMapped, AccessPath::kStreamed, AccessPath::kSingleCopy, AccessPath::kWindow};

class AccessTrials {
 public:
  /// Calls that are tried together: of one collective, of sizes of the same power of two.
  using Class = std::int32_t;
  static constexpr std::uint32_t kRowCallsMax = 12;  // trials of a path in a row
  static constexpr Class kNone = -1;  ///< too short to be worth a trial, or of unknown size
  /// The class of a call in which no member gives more than `bytes`, which may be kNotAgreed.
  static Class class_of(Collective collective, std::size_t bytes);
  /// Whether what can be read in place is tried through the window.
  static bool tries_window(Class number);

  explicit AccessTrials(shm::SegmentGroup& group);

  /// The path of call `sequence` of the group, which is one of the class. All members make the same
  /// calls.
  AccessPath next(Class number, std::uint64_t sequence) {
    State& state = states_[static_cast<std::size_t>(number)];
    return ++state.calls < state.next_change ? state.path : change(number, sequence);
  }
  /// Whether the call that next() was asked for last is to be timed.
  bool is_trial() const { return trial_.number != kNone; }
  /// How long that call of so many bytes took; zero where its path did not matter to this rank.
  void note(std::size_t bytes, Duration took);

 private:
  struct State {
    std::uint32_t calls = 0;
    std::uint32_t next_change = 0;  // the call up to which `path` stays
    std::uint32_t trials = 0;
    AccessPath path = AccessPath::kMapped;
    std::uint64_t last_trial = 0;                   // number of the call
    std::array<std::uint32_t, kRowCallsMax> row{};  // times of the trials of a path that run
  };
  struct Trial {
    Class number = kNone;
    std::size_t path = 0;    // of kTriedPaths
    std::uint32_t call = 0;  // of the row
    bool is_first_row = false;
  };

  AccessPath change(Class number, std::uint64_t sequence);
  std::atomic<std::uint32_t>& time(int member, Class number, std::size_t path) const;
  AccessPath fastest(Class number) const;

  shm::SegmentGroup& group_;
  std::vector<State> states_;
  Trial trial_;  // the call that runs
};

/// Time that a rank works in a call and waits for ranks that are in it as well. Of the wait for
/// those that may be yet to come only the first microsecond counts: so long what it told may take
/// to become visible, which the paths differ in. Where nobody called start() and waits() the rest
/// does nothing.
class CallTimer {
 public:
  void start() {
    started_ = Clock::now();
    waited_ = {};
    is_waiting_ = false;
  }
  /// The rank looks what it can do next.
  void looks() {
    if (is_waiting_) looked_ = Clock::now();
  }
  /// It found nothing, because of ranks that may be late.
  void waits() {
    if (is_waiting_) return;
    is_waiting_ = true;
    waits_since_ = looked_ = Clock::now();
  }
  /// It found something when it looked last.
  void goes_on() {
    if (std::exchange(is_waiting_, false)) waited_ += looked_ - waits_since_;
  }
  Duration stop() {
    goes_on();
    const Duration counted = std::min<Duration>(waited_, std::chrono::microseconds(1));
    return Clock::now() - started_ - waited_ + counted;
  }

 private:
  TimePoint started_;
  Duration waited_{};
  bool is_waiting_ = false;
  TimePoint waits_since_;
  TimePoint looked_;
};

}  // namespace unisono::native
