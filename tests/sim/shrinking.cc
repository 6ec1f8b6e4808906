#include "tests/sim/shrinking.h"

#include <utility>

namespace unisono::sim {
namespace {

using rendezvous::Survivor;

// In which those that make a communicator meet.
Operation meeting_call() {
  Operation barrier;
  barrier.what.collective = Collective::kBarrier;
  barrier.what.options.algorithm = "dissemination";
  return barrier;
}

}  // namespace

Status in_world_ranks(const SimulatedCommunicator& communicator, const Status& cause) {
  if (cause.rank() < 0) return cause;
  return Status(cause.code(), cause.message(), communicator.members().world_rank(cause.rank()));
}

Shrinking::Shrinking(SimulatedCommunicator& parent, TimePoint asks_at,
                     std::chrono::milliseconds patience, Surroundings around)
    : parent_(parent),
      asks_at_(asks_at),
      around_(std::move(around)),
      survivor_(around_.arbiter, parent.members().id(), parent.members().sorted_world_ranks(),
                patience) {
  around_.wake_in(asks_at_ - now());
}

Shrinking::State Shrinking::advance() {
  if (now() < asks_at_) return State::kGoesOn;
  const std::uint32_t parent = parent_.members().id();
  if (!std::exchange(has_asked_, true)) {
    around_.news.forget_shrink_words(parent);
    survivor_.ask(now());
    // As src/comm/shrink.cc looks for an answer, which there may be without an arbiter.
    around_.wake_in(Duration::zero());
    return State::kGoesOn;
  }
  if (is_forming_) look_at_meeting();
  if (is_forming_) return State::kGoesOn;
  switch (survivor_.advance(around_.news.take_shrink_word(parent), now())) {
    case Survivor::Task::kForm:
      form(survivor_.id(), survivor_.survivors());
      return State::kGoesOn;
    case Survivor::Task::kUse:
      return State::kMade;
    case Survivor::Task::kGoAlone:
      form(around_.take_id(), {around_.arbiter.world().rank});
      return State::kMade;
    case Survivor::Task::kStop:
      drop_meeting();
      return State::kRefused;
    case Survivor::Task::kWait:
      if (survivor_.next_due() != kNever) around_.wake_in(survivor_.next_due() - now());
  }
  return State::kGoesOn;
}

void Shrinking::form(std::uint32_t id, std::vector<Rank> survivors) {
  drop_meeting();
  meeting_ = &around_.make(id, std::move(survivors), {meeting_call()});
  is_forming_ = true;
  around_.wake_in(Duration::zero());
}

void Shrinking::look_at_meeting() {
  meeting_->start_calls();
  if (meeting_->failure().ok() && !meeting_->has_made_all_calls()) return;
  is_forming_ = false;
  survivor_.on_formed(in_world_ranks(*meeting_, meeting_->failure()), now());
}

void Shrinking::drop_meeting() {
  if (meeting_ != nullptr) meeting_->close();
  meeting_ = nullptr;
}

std::string Shrinking::whereabouts() const {
  const std::uint32_t id = survivor_.id();
  const std::string text = id == 0 ? "waits to go on" : "makes " + std::to_string(id);
  return meeting_ == nullptr ? text : text + " and " + meeting_->whereabouts();
}

}  // namespace unisono::sim
