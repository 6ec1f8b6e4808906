#include "transports/shm/loan_trials.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "base/median.h"
#include "transports/shm/trial_times.h"

namespace unisono::shm {
namespace {

bool is_same_message(const FrameHeader& one, const FrameHeader& other) {
  return one.sequence == other.sequence && one.communicator == other.communicator &&
         one.index == other.index && one.total_bytes == other.total_bytes;
}

}  // namespace

LoanTrials::LoanTrials(MessageTimes* told, TrialMemory* memory) : told_(told), memory_(memory) {
  for (State& state : states_) {
    state.until_next = messages_until_settled(size_of(state));
    if (memory == nullptr) continue;
    const auto& known = memory->known.messages[size_of(state)];
    state.decided = first_way(known) == 1;
    state.knows_long_rows = has_times(known);
    if (!state.knows_long_rows) continue;
    state.known = known[first_way(known)];
    state.until_check = std::max(state.until_next, kMessagesUntilCheck);
    state.until_next = kMessagesUntilNext / kKnownDivisor;
  }
}

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
  if (holds(state, number)) return state.decided;
  if (state.messages > 0) note(state);
  if (state.times_known == state.row_times() || state.messages == kRowMessagesMax) {
    end_row(state);
  }
  if (state.until_next > 0) return state.decided;
  if (state.messages++ == 0) state.first = number;
  return state.row % 2 == 1;
}

// Whether nothing is tried yet.
bool LoanTrials::holds(State& state, std::uint32_t number) const {
  if (state.until_next == 0) return false;
  const bool changed = has_changed(state, number);
  state.until_next = changed ? 0 : state.until_next - 1;
  if (state.until_next == 0) state.messages = state.times_known = 0;  // a check ends with it
  return !changed;
}

// Looks at some messages' times, once a check is due.
bool LoanTrials::has_changed(State& state, std::uint32_t number) const {
  if (state.until_check > 0) {
    --state.until_check;
    return false;
  }
  if (state.messages > 0) note(state);
  if (state.messages++ == 0) state.first = number;
  if (state.times_known < kCheckCalls && state.messages < kRowMessagesMax) return false;
  const bool is_known = std::exchange(state.times_known, 0) == kCheckCalls;
  state.messages = 0;
  const auto times = std::span(state.times).first(kCheckCalls);
  const bool changed = is_known && state.checks.ask(median(times), state.known);
  state.until_check = state.checks.every();
  return changed;
}

// The time of the last message that was read, if it is one of this row.
void LoanTrials::note(State& state) const {
  std::uint64_t& told = told_->of_size[size_of(state)];
  const std::uint64_t word = std::atomic_ref<std::uint64_t>(told).load(std::memory_order_relaxed);
  const std::uint32_t number = static_cast<std::uint32_t>(word >> 32);
  const bool is_of_row = number - state.first < kRowMessagesMax;
  const bool is_new = state.times_known == 0 || number != state.told;
  if (!is_of_row || !is_new) return;
  state.told = number;
  state.times[state.times_known++] = static_cast<std::uint32_t>(word);
}

void LoanTrials::end_row(State& state) const {
  const bool is_known = std::exchange(state.times_known, 0) == state.row_times();
  state.messages = 0;
  if (is_known) {
    judge_row(state);
    ++state.row;
    if (state.row != kRows && state.row != kRows + 2) return;
    if (!decide(state)) return;
  }
  state.row = 0;
  state.least = {};
  state.until_next = kMessagesUntilNext;
}

void LoanTrials::judge_row(State& state) {
  const bool is_long = state.row >= kRows;
  const std::uint32_t left_out = is_long ? kLongRowTimes - kCountedOfLongRow : 1;
  const auto counted = std::span(state.times).first(state.row_times()).subspan(left_out);
  const std::uint32_t middle = median(counted);
  std::uint32_t& least = state.least[state.row % 2];
  least = is_long ? middle : lesser_time(least, middle);
}

// Whether nothing is to be tried any more. What short rows say counts as long as there is nothing
// better.
bool LoanTrials::decide(State& state) const {
  const auto [less, more] = std::minmax(state.least[0], state.least[1]);
  const bool ends = state.row > kRows || is_far_behind(more, less);
  if (ends || !state.knows_long_rows) {
    state.decided = fastest_way(state.least) == 1;
    if (memory_ != nullptr) shm::note(memory_->learned.messages[size_of(state)], state.least);
  }
  state.knows_long_rows = state.knows_long_rows || ends;
  state.known = state.least[state.way()];
  state.until_check = state.checks.every();
  if (!ends) state.until_next = kMessagesUntilLong;
  return ends;
}

void MessageTimer::begin_message(const FrameHeader& header, bool is_lent) {
  if (held_bytes_ != 0) tell_held(ended_);
  ReceivedMessages::OfSize& received =
      received_.of_size[static_cast<std::size_t>(size_of_message(header.total_bytes))];
  ++received.count;
  received.last_was_lent = is_lent;
  number_ = header.sequence;
  began_ = std::max(granted_at(number_), ended_);
}

void MessageTimer::end_sent_message() {
  sending_size_ = kNoSize;
  if (held_bytes_ != 0) tell_held(Clock::now());
}

// For one that is no longer among them, the time of the oldest: it was asked for before that.
TimePoint MessageTimer::granted_at(std::uint64_t number) const {
  for (const Grant& grant : grants_) {
    if (grant.number == number) return grant.at;
  }
  return grants_[grant_count_ % grants_.size()].at;
}

void MessageTimer::tell_held(TimePoint end) {
  const std::uint64_t bytes = std::exchange(held_bytes_, 0);
  const std::uint64_t time = time_of_a_mib(bytes, end - began_);
  std::uint64_t& told = told_->of_size[size_of_message(bytes)];
  std::atomic_ref<std::uint64_t>(told).store(number_ << 32 | time, std::memory_order_relaxed);
}

}  // namespace unisono::shm
