#include "transports/shm/store_trials.h"

#include <algorithm>
#include <atomic>

#include "base/median.h"
#include "transports/shm/trial_times.h"

namespace unisono::shm {
namespace {

// Rows of each kind in turn, twice, because a row may be disturbed.
constexpr std::uint32_t kRow = kTrialRow;
constexpr std::uint32_t kTrials = 4 * kRow;

// The kinds take turns, row by row.
PieceStores kind_of(std::uint32_t trials) {
  return {trials / kRow % 2 == 1 ? PieceStores::kStreamed : 0};
}

// Each takes at most two seconds, so that both fit a word.
std::uint32_t both_ends(std::uint32_t own, std::uint32_t read) {
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
    state.decided.bits = first_way(known) == 1 ? PieceStores::kStreamed : 0;
    enter(state, Phase::kDecided, state.decided, kPiecesUntilNext / kKnownDivisor);
  }
}

void StoreTrials::enter(State& state, Phase phase, PieceStores stores, std::uint32_t pieces) {
  state.phase = phase;
  state.stores = stores;
  state.pieces = 0;
  state.pieces_until = pieces;
}

PieceStores StoreTrials::change(State& state) {
  switch (state.phase) {
    case Phase::kDecided:
      enter(state, Phase::kSettling, kind_of(state.trials), kSettlingPieces - 1);  // and this one
      break;
    case Phase::kSettling:
      enter(state, Phase::kTiming, state.stores, 0);
      return time_piece(state);
    case Phase::kTiming:
      return time_piece(state);
    case Phase::kAwaiting:
      decide(state);
      break;
  }
  return state.stores;
}

PieceStores StoreTrials::time_piece(State& state) {
  PieceStores stores{state.stores.bits | PieceStores::kTrial};
  const std::uint32_t trial = state.trials++ % kTrials;
  if (trial < 2 * kRow && trial % kRow == 0) stores.bits |= PieceStores::kAnew;
  if (trial + 1 == kTrials) {
    enter(state, Phase::kAwaiting, state.decided, 0);
  } else if (state.trials % kRow == 0) {
    enter(state, Phase::kSettling, kind_of(state.trials), kSettlingPieces);
  }
  return stores;
}

// Once the reader has timed them all.
void StoreTrials::decide(State& state) {
  ReaderTimes::OfSize& told = told_->of_size[size_of(state)];
  // Acquire pairs with StoreTimer::note(): the times come with it.
  if (word(told.trials).load(std::memory_order_acquire) != state.trials) return;
  const std::uint32_t read_cached = word(told.cached).load(std::memory_order_relaxed);
  const std::uint32_t read_streamed = word(told.streamed).load(std::memory_order_relaxed);
  const WayTimes<2> times{both_ends(state.own[0], read_cached),
                          both_ends(state.own[1], read_streamed)};
  const bool were_read = read_cached != 0 && read_streamed != 0;
  const bool gains = were_read && fastest_way(times) == 1;
  state.decided.bits = gains ? PieceStores::kStreamed : 0;
  if (were_read && memory_ != nullptr) shm::note(memory_->learned.pieces[size_of(state)], times);
  enter(state, Phase::kDecided, state.decided, kPiecesUntilNext);
}

void StoreTrials::note(PieceStores stores, std::size_t bytes, Duration took) {
  State& state = states_[static_cast<std::size_t>(size_of_piece(bytes))];
  std::uint32_t& own = state.own[stores.streamed() ? 1 : 0];
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
