#include "transports/shm/loan_trials.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "transports/shm/trial_times.h"

namespace unisono::shm {
namespace {

std::size_t way_of(std::uint32_t trial) { return trial / kRowMessages % 2; }

bool is_same_message(const FrameHeader& one, const FrameHeader& other) {
  return one.sequence == other.sequence && one.communicator == other.communicator &&
         one.index == other.index && one.total_bytes == other.total_bytes;
}

}  // namespace

bool LoanTrials::lends(const FrameHeader& header, const ReceivedMessages* followed) {
  const int size = size_of_message(header.total_bytes);
  if (size < 0) return false;
  if (!is_same_message(header, last_)) {
    const std::size_t index = static_cast<std::size_t>(size);
    State& state = states_[index];
    last_ = header;
    last_is_lent_ = followed != nullptr && follows(state, followed->of_size[index])
                        ? followed->of_size[index].last_was_lent
                        : next(state, static_cast<std::uint32_t>(header.sequence));
  }
  return last_is_lent_;
}

bool LoanTrials::follows(State& state, const ReceivedMessages::OfSize& received) {
  const bool has_come = std::exchange(state.received, received.count) != received.count;
  state.alone = has_come ? 0 : std::min(state.alone + 1, kFollowingMessages);
  return state.alone < kFollowingMessages;
}

bool LoanTrials::next(State& state, std::uint32_t number) const {
  if (state.trials > 0) note(state);
  if (state.trials == kTrialMessages) {
    const auto [by_ring, lent] = std::exchange(state.least, {});
    state.decided = by_ring != 0 && lent != 0 && is_clearly_less(lent, by_ring);
    state.trials = 0;
    state.until_next = kMessagesUntilNext;
  }
  if (state.until_next > 0) {
    --state.until_next;
    return state.decided;
  }
  state.number = number;
  return way_of(state.trials++) == 1;
}

// What the last trial took, if its reader has told already.
void LoanTrials::note(State& state) const {
  const std::uint32_t trial = state.trials - 1, place = trial % kRowMessages;
  std::uint64_t& told = told_->of_size[&state - states_.data()];
  const std::uint64_t word = std::atomic_ref<std::uint64_t>(told).load(std::memory_order_relaxed);
  state.row[place] = word >> 32 == state.number ? static_cast<std::uint32_t>(word) : 0;
  if (place + 1 < kRowMessages) return;
  const auto counted = std::span(state.row).subspan(1);
  const auto middle = counted.begin() + counted.size() / 2;
  std::nth_element(counted.begin(), middle, counted.end());
  std::uint32_t& least = state.least[way_of(trial)];
  least = lesser_time(least, *middle);
}

void MessageTimer::tell(const FrameHeader& header) {
  ended_ = Clock::now();
  const std::uint64_t time = time_of_a_mib(header.total_bytes, ended_ - began_);
  std::uint64_t& told = told_->of_size[size_of_message(header.total_bytes)];
  std::atomic_ref<std::uint64_t>(told).store(header.sequence << 32 | time,
                                             std::memory_order_relaxed);
}

}  // namespace unisono::shm
