#include "transports/shm/store_trials.h"

#include <algorithm>
#include <atomic>

#include "base/median.h"
#include "transports/shm/trial_times.h"

namespace unisono::shm {
namespace {

// Rows of each kind in turn, twice, because a row may be disturbed.
constexpr std::uint32_t kRow = kTrialRow;
constexpr std::uint32_t kRowsOfTrials = 4;

PieceStores kind_of(std::uint32_t row) { return {row % 2 == 1 ? PieceStores::kStreamed : 0}; }

std::size_t way_of(PieceStores stores) { return stores.streamed() ? 1 : 0; }

// Each takes at most two seconds, so that both fit a word. None where nothing was read.
std::uint32_t both_ends(std::uint32_t own, std::uint32_t read) {
  if (read == 0) return 0;
  constexpr std::uint64_t kMost = 4'000'000'000;
  return static_cast<std::uint32_t>(std::min(std::uint64_t{own} + read, kMost));
}

std::atomic_ref<std::uint32_t> word(std::uint32_t& value) {
  return std::atomic_ref<std::uint32_t>(value);
}

}  // namespace

std::optional<std::uint32_t> RowOfTimes::add(std::uint32_t time) {
  times_[count_++] = time;
  if (count_ < kTrialRow) return {};
  count_ = 0;
  return median(times_);
}

StoreTrials::StoreTrials(ReaderTimes* told, TrialMemory* memory) : told_(told), memory_(memory) {
  if (memory == nullptr) return;
  for (State& state : states_) {
    const auto& known = memory->known.pieces[size_of(state)];
    if (!has_times(known)) continue;
    const std::size_t way = first_way(known);
    state.decided = kind_of(static_cast<std::uint32_t>(way));
    state.known = known[way];
    hold(state, kPiecesUntilNext / kKnownDivisor);
    state.pieces_until = kSettlingPieces;
  }
}

void StoreTrials::enter(State& state, Phase phase, PieceStores stores, std::uint32_t pieces) {
  state.phase = phase;
  state.stores = stores;
  state.pieces = 0;
  state.pieces_until = pieces;
}

// Until the next check, or until all is tried again.
void StoreTrials::hold(State& state, std::uint32_t pieces_until_trials) {
  state.until_trials = pieces_until_trials;
  enter(state, Phase::kDecided, state.decided, std::min(pieces_until_trials, state.checks.every()));
}

void StoreTrials::begin_trials(State& state) {
  state.is_check = false;
  state.rows = 0;
  enter(state, Phase::kSettling, kind_of(0), kSettlingPieces - 1);  // and this one
}

PieceStores StoreTrials::change(State& state) {
  switch (state.phase) {
    case Phase::kDecided:
      state.until_trials -= state.pieces_until;
      if (state.until_trials == 0) {
        begin_trials(state);
        break;
      }
      state.is_check = true;
      enter(state, Phase::kTiming, state.decided, 0);
      return time_piece(state);
    case Phase::kSettling:
      enter(state, Phase::kTiming, state.stores, 0);
      return time_piece(state);
    case Phase::kTiming:
      return time_piece(state);
    case Phase::kAwaiting:
      judge(state);
      break;
  }
  return state.stores;
}

PieceStores StoreTrials::time_piece(State& state) {
  PieceStores stores{state.stores.bits | PieceStores::kTrial};
  const bool is_first_row = state.is_check || state.rows < 2;  // of its kind
  if (is_first_row && state.timed % kRow == 0) stores.bits |= PieceStores::kAnew;
  if (++state.timed % kRow != 0) return stores;
  if (state.is_check || ++state.rows == kRowsOfTrials) {
    enter(state, Phase::kAwaiting, state.decided, 0);
  } else {
    enter(state, Phase::kSettling, kind_of(state.rows), kSettlingPieces);
  }
  return stores;
}

// Once the reader has timed them all.
void StoreTrials::judge(State& state) {
  ReaderTimes::OfSize& told = told_->of_size[size_of(state)];
  // Acquire pairs with StoreTimer::note(): the times come with it.
  if (word(told.trials).load(std::memory_order_acquire) != state.timed) return;
  const std::uint32_t read_cached = word(told.cached).load(std::memory_order_relaxed);
  const std::uint32_t read_streamed = word(told.streamed).load(std::memory_order_relaxed);
  const WayTimes<2> times{both_ends(state.own[0], read_cached),
                          both_ends(state.own[1], read_streamed)};
  if (!state.is_check) {
    decide(state, times);
  } else if (const std::size_t way = way_of(state.decided);
             state.checks.ask(times[way], state.known)) {
    begin_trials(state);
  } else {
    hold(state, state.until_trials);
  }
}

void StoreTrials::decide(State& state, const WayTimes<2>& times) {
  const bool were_read = times[0] != 0 && times[1] != 0;
  const std::size_t way = were_read ? fastest_way(times) : 0;
  state.decided = kind_of(static_cast<std::uint32_t>(way));
  state.known = times[way];
  if (were_read && memory_ != nullptr) shm::note(memory_->learned.pieces[size_of(state)], times);
  hold(state, kPiecesUntilNext);
}

void StoreTrials::note(PieceStores stores, std::size_t bytes, Duration took) {
  State& state = states_[static_cast<std::size_t>(size_of_piece(bytes))];
  std::uint32_t& own = state.own[way_of(stores)];
  if (stores.is_anew()) own = 0;
  const auto median = state.row.add(time_of_a_mib(bytes, took));
  if (median) own = lesser_time(own, *median);
}

void StoreTimer::note(PieceStores stores, std::size_t bytes, Duration took) {
  const int size = size_of_piece(bytes);
  if (size < 0) return;  // no correct writer tries that
  ReaderTimes::OfSize& told = told_->of_size[size];
  RowOfTimes& row = rows_[static_cast<std::size_t>(size)];
  const auto time = word(stores.streamed() ? told.streamed : told.cached);
  if (stores.is_anew()) {
    row.clear();
    time.store(0, std::memory_order_relaxed);
  }
  if (const auto median = row.add(time_of_a_mib(bytes, took))) {
    time.store(lesser_time(time.load(std::memory_order_relaxed), *median),
               std::memory_order_relaxed);
  }
  const auto trials = word(told.trials);
  trials.store(trials.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace unisono::shm
