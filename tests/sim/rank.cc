#include "tests/sim/rank.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/communicator_id.h"
#include "base/grace_periods.h"
#include "tests/sim/interleaving.h"

namespace unisono::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kScratchBytes = 1 << 26;
// A rank that has not gone on stays until the others can have heard of it.
Duration stays_after_failure(const Case& c) {
  return std::max<Duration>(seconds(5), c.silence * 5 / 3);
}
constexpr Duration kLooksEveryMin = microseconds(1), kLooksEveryMax = milliseconds(20);
constexpr Duration kTendEveryMin = milliseconds(1), kTendEveryMax = milliseconds(50);
// As often a job goes on with its survivors.
constexpr std::size_t kShrinksMax = 3;

std::vector<Rank> all_ranks(int size) {
  std::vector<Rank> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

SimulatedRank::SimulatedRank(Rank rank, Surroundings around, std::uint64_t seed)
    : rank_(rank),
      around_(std::move(around)),
      random_(seed),
      news_(around_.arbiter, around_.c.ranks,
            [this](Rank peer) {
              around_.accuse(whereabouts() + ": takes rank " + std::to_string(peer) +
                             " for no member");
            }),
      engine_(news_, around_.c.ranks, 0, IdleChoice("yield", {})),
      watched_(engine_.messenger(), around_.arbiter,
               {call_timeout(around_.c), std::chrono::hours(24)}),
      scratch_(kScratchBytes) {
  for (Rank peer = 0; peer < around_.c.ranks; ++peer) {
    engine_.messenger().set_route(peer, around_.fabric.transport(rank));
  }
  current_ = &make_communicator(communicator_id(1, 0, around_.c.ranks), all_ranks(around_.c.ranks),
                                calls_of(around_.c, rank));
}

SimulatedRank::~SimulatedRank() = default;

SimulatedCommunicator& SimulatedRank::make_communicator(std::uint32_t id, std::vector<Rank> members,
                                                        std::vector<Operation> operations) {
  const SimulatedCommunicator::Surroundings around{
      .schedule = around_.schedule,
      .engine = engine_,
      .scratch = scratch_,
      .job = watched_,
      .news = news_,
      .arbiter = around_.arbiter,
      .memory = around_.memory,
      .on_failed = [this](SimulatedCommunicator& failed,
                          const Status& cause) { note_failure(failed, cause); },
      .take_id = [this] { return communicator_id(next_number_++, rank_, around_.c.ranks); },
      .on_split = [this](std::uint32_t number,
                         std::vector<Rank> part) { add_part(number, std::move(part)); },
      .wake_in = around_.wake_in,
      .accuse = around_.accuse};
  communicators_.push_back(std::make_unique<SimulatedCommunicator>(
      id, std::move(members), rank_, std::move(operations), around_.c, random_.next(), around));
  communicators_.back()->enlist();
  return *communicators_.back();
}

void SimulatedRank::beat() {
  if (state_ == State::kLeft) return;
  {
    const Engine::Lock lock(engine_);
    engine_.poll();
    look_around();
    if (state_ != State::kDraining) {
      for (SimulatedCommunicator* const part : parts_) {
        if (part != part_of_current_ || state_ != State::kCalling) part->start_calls();
      }
    }
    if (state_ == State::kCalling) {
      call();
      if (!current().failure().ok()) {
        begin_to_shrink();
      } else if (current().has_made_all_calls() && are_parts_settled()) {
        end_calls();
      }
    }
    if (is_lent()) current().start_calls([] { return false; });  // a split goes on
    if (state_ == State::kShrinking) shrink();
    if (state_ == State::kLingering && now() >= leaves_at_ && are_parts_settled()) drain();
    if (state_ == State::kDraining) leave();
  }
  around_.settle();
}

void SimulatedRank::end_calls() {
  if (around_.is_lent_after_calls) return lend();
  linger(random_.of_any_scale_up_to(seconds(1)));
}

void SimulatedRank::lend() { state_ = State::kLent; }

void SimulatedRank::take_back() {
  state_ = State::kCalling;
  around_.wake_in(Duration::zero());
}

// In turns, operation by operation, or in all of its communicators at once.
void SimulatedRank::call() {
  SimulatedCommunicator& whole = current();
  const auto is_turn_of_whole = [&] {  // which may get its part meanwhile
    const SimulatedCommunicator* const part = part_of_current_;
    return !around_.c.takes_turns || part == nullptr || part->is_settled() ||
           (!part->is_running() && whole.next_operation() - split_at_ <= part->next_operation());
  };
  const auto is_turn_of_part = [&] {
    return !around_.c.takes_turns || whole.is_settled() ||
           (!whole.is_running() && !is_turn_of_whole());
  };
  for (int looks = 0; looks < 2; ++looks) {
    whole.start_calls(is_turn_of_whole);
    if (part_of_current_ != nullptr) part_of_current_->start_calls(is_turn_of_part);
  }
}

bool SimulatedRank::are_parts_settled() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const auto* part) { return part->is_settled(); });
}

void SimulatedRank::add_part(std::uint32_t id, std::vector<Rank> members) {
  if (is_lent()) {
    made_while_lent_ = &make_communicator(id, std::move(members), {});
    return;
  }
  part_ids_.insert(id);
  auto calls = calls_of_part(around_.c, static_cast<int>(members.size()));
  parts_.push_back(&make_communicator(id, std::move(members), std::move(calls)));
  part_of_current_ = parts_.back();
  split_at_ = current().latest_operation() + 1;
}

void SimulatedRank::look_around() {
  note_search();
  news_.poll_arbiter();
  news_.tell_events();
  const bool runs = std::any_of(communicators_.begin(), communicators_.end(),
                                [](const auto& each) { return each->is_running(); });
  if (now() >= next_tend_) {
    news_.tend_now();
    tend_every_ = runs ? std::clamp<Duration>(tend_every_ * 2, kTendEveryMin, kTendEveryMax)
                       : Duration(kTendEveryMin);
    next_tend_ = now() + tend_every_;
  }
  if (runs || state_ == State::kCalling) around_.wake_in(next_tend_ - now());
  look_at_memory();
}

// The longer a call takes, the more rarely.
void SimulatedRank::look_at_memory() {
  const bool watches = std::any_of(communicators_.begin(), communicators_.end(),
                                   [](const auto& each) { return each->watches_memory(); });
  if (!watches) {
    looks_every_ = kLooksEveryMin;
    return;
  }
  if (now() < next_look_) return;
  next_look_ = now() + random_.up_to(looks_every_);
  around_.wake_in(next_look_ - now());
  looks_every_ = std::min<Duration>(looks_every_ * 2, kLooksEveryMax);
}

void SimulatedRank::note_failure(SimulatedCommunicator& communicator, const Status& cause) {
  const Members& members = communicator.members();
  failures_.push_back({members.id(),
                       in_world_ranks(communicator, cause),
                       around_.arbiter.is_lost() && state_ != State::kLeft,
                       around_.client.is_seeking(),
                       part_ids_.contains(members.id()),
                       now(),
                       members.world_ranks(),
                       {},
                       communicator.waits_for_any()});
  if (cause.code() != ErrorCode::kTimeout) return;
  // What it looks at there is none of the job's accesses.
  Interleaving::in_one_go([&] { communicator.add_waits(&failures_.back().waits); });
}

void SimulatedRank::note_search() {
  const bool goes_on = !searches_.empty() && searches_.back().second == kNever;
  if (around_.client.is_seeking()) {
    if (!goes_on) searches_.emplace_back(now(), kNever);
  } else if (goes_on) {
    searches_.back().second = now();
  }
}

bool SimulatedRank::has_sought(TimePoint from, TimePoint to) const {
  return std::any_of(searches_.begin(), searches_.end(),
                     [&](const auto& each) { return each.first <= to && each.second >= from; });
}

bool SimulatedRank::has_closed_by(std::uint32_t communicator, TimePoint when) const {
  return drains_from_ <= when ||
         std::any_of(communicators_.begin(), communicators_.end(), [&](const auto& each) {
           return each->members().id() == communicator && each->closed_at() <= when;
         });
}

int SimulatedRank::calls_done() const {
  int calls = 0;
  for (const auto& communicator : communicators_) calls += communicator->calls_done();
  return calls;
}

int SimulatedRank::messages_done() const {
  int messages = 0;
  for (const auto& communicator : communicators_) messages += communicator->messages_done();
  return messages;
}

// ---- Going on with the survivors ----------------------------------------------------------------

void SimulatedRank::begin_to_shrink() {
  if (!can_shrink(around_.c) || shrunk_.size() >= kShrinksMax) {
    return linger(stays_after_failure(around_.c) + random_.up_to(seconds(1)));
  }
  state_ = State::kShrinking;
  const TimePoint asks_at = now() + random_.of_any_scale_up_to(milliseconds(300));
  shrinking_.emplace(current(), asks_at, around_.c.patience, shrinking_surroundings());
}

Shrinking::Surroundings SimulatedRank::shrinking_surroundings() {
  return {.arbiter = around_.arbiter,
          .news = news_,
          .schedule = around_.schedule,
          .make = [this](std::uint32_t id, std::vector<Rank> members,
                         std::vector<Operation> operations) -> SimulatedCommunicator& {
            return make_communicator(id, std::move(members), std::move(operations));
          },
          .take_id = [this] { return communicator_id(next_number_++, rank_, around_.c.ranks); },
          .wake_in = around_.wake_in};
}

void SimulatedRank::shrink() {
  engine_.give_up_dead();
  switch (shrinking_->advance()) {
    case Shrinking::State::kMade:
      return go_on();
    case Shrinking::State::kRefused:
      return end_refused();
    case Shrinking::State::kGoesOn:
      break;
  }
}

void SimulatedRank::end_refused() {
  refusal_ = shrinking_->why();
  shrinking_.reset();
  linger(stays_after_failure(around_.c) + random_.up_to(seconds(1)));
}

void SimulatedRank::go_on() {
  SimulatedCommunicator& made = shrinking_->made();
  shrunk_.push_back(
      {current().members().id(), made.members().id(), made.members().world_ranks(), now()});
  made.add_calls(adapted_to(around_.c, made.members().size()).operations);
  shrinking_.reset();
  current_ = &made;
  part_of_current_ = nullptr;
  state_ = State::kCalling;
  around_.wake_in(Duration::zero());
}

// ---- The end ------------------------------------------------------------------------------------

void SimulatedRank::linger(Duration wait) {
  state_ = State::kLingering;
  leaves_at_ = now() + wait;
  around_.wake_in(wait);
}

void SimulatedRank::drain() {
  state_ = State::kDraining;
  drains_from_ = now();
  drain_.emplace(current().failure().ok(), now());
  for (const auto& communicator : communicators_) communicator->close();
  engine_.give_up_dead();
}

void SimulatedRank::leave() {
  const bool has_unsent = engine_.messenger().has_unsent();
  // A client that looks for the arbiter waits for it to say goodbye.
  const bool waits = has_unsent || around_.client.is_seeking();
  if (waits && drain_->goes_on(now())) return around_.wake_in(Drain::kLookMax / 2);
  if (culprits(around_.c).empty() && has_unsent && !outlasts_leaving(around_.c)) {
    around_.accuse(whereabouts() + ": what was sent did not go out");
  }
  SimulatedTransport& transport = around_.fabric.transport(rank_);
  const bool is_lent = transport.lent() > 0;  // close() gives all back
  transport.close(now(), engine_.messenger());
  if (is_lent && culprits(around_.c).empty())
    around_.accuse(whereabouts() + ": payloads are still lent");
  if (engine_.is_running()) around_.accuse(whereabouts() + ": calls still run");
  if (scratch_.lent() > 0) around_.accuse(whereabouts() + ": scratch memory is lost");
  for (const auto& communicator : communicators_) {
    if (communicator->are_buffers_untouched()) continue;
    around_.accuse(whereabouts() + ": a buffer that was given back was written to");
  }
  state_ = State::kLeft;
  around_.arbiter.leave();
  around_.on_left();
}

std::string SimulatedRank::whereabouts() const {
  std::string text = "rank " + std::to_string(rank_) + " ";
  if (state_ == State::kShrinking) {
    return text + shrinking_->whereabouts() + " after it " + current().whereabouts();
  }
  if (!failures_.empty()) text += "(" + failures_.back().failure.message() + ") ";
  return text + current().whereabouts();
}

}  // namespace unisono::sim
