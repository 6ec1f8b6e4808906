#include "tests/sim/rank.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/communicator_id.h"
#include "base/grace_periods.h"
#include "rendezvous/shrink_agreements.h"

namespace unisono::sim {
namespace {

using rendezvous::ShrinkMessage;
using rendezvous::ShrinkStep;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kScratchBytes = 1 << 26;
constexpr milliseconds kCallTimeout{10'000};
constexpr milliseconds kPatience{4'000};  // of who shrinks
// As runtime.cc and shrink.cc have them.
constexpr Duration kDrainLimit = seconds(2), kDrainLimitOfFailure = milliseconds(100);
constexpr Duration kAnswerTime = seconds(10);
// A rank that has not gone on stays until the others can have heard of it.
constexpr Duration kStaysAfterFailure = seconds(5);
constexpr Duration kTendEveryMin = milliseconds(1), kTendEveryMax = milliseconds(50);
// As often a job goes on with its survivors.
constexpr std::size_t kShrinksMax = 3;

std::vector<Rank> all_ranks(int size) {
  std::vector<Rank> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// In which those that make a communicator meet.
Operation meeting_call() {
  Operation barrier;
  barrier.what.collective = Collective::kBarrier;
  barrier.what.options.algorithm = "dissemination";
  return barrier;
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
      .job = *this,
      .arbiter = around_.arbiter,
      .catch_up = [this] { news_.catch_up(); },
      .on_failed = [this](SimulatedCommunicator& failed,
                          const Status& cause) { note_failure(failed, cause); },
      .wake_in = around_.wake_in,
      .accuse = around_.accuse};
  communicators_.push_back(std::make_unique<SimulatedCommunicator>(
      id, std::move(members), rank_, std::move(operations), around_.c, random_.next(), around));
  news_.add(*communicators_.back());
  return *communicators_.back();
}

void SimulatedRank::beat() {
  if (state_ == State::kLeft) return;
  {
    const Engine::Lock lock(engine_);
    engine_.poll();
    look_around();
    if (state_ == State::kCalling) {
      current().start_calls();
      if (!current().failure().ok()) {
        begin_to_shrink();
      } else if (current().has_made_all_calls()) {
        linger(random_.of_any_scale_up_to(seconds(1)));
      }
    }
    if (state_ == State::kShrinking) shrink();
    if (state_ == State::kLingering && now() >= leaves_at_) drain();
    if (state_ == State::kDraining) leave();
  }
  around_.settle();
}

void SimulatedRank::look_around() {
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
}

void SimulatedRank::note_failure(const SimulatedCommunicator& communicator, const Status& cause) {
  const Members& members = communicator.members();
  const Rank world_rank = cause.rank() < 0 ? -1 : members.world_rank(cause.rank());
  failures_.push_back({members.id(), Status(cause.code(), cause.message(), world_rank),
                       around_.arbiter.is_lost() && state_ != State::kLeft});
}

int SimulatedRank::calls_done() const {
  int calls = 0;
  for (const auto& communicator : communicators_) calls += communicator->calls_done();
  return calls;
}

// ---- Going on with the survivors ----------------------------------------------------------------

void SimulatedRank::begin_to_shrink() {
  if (!can_shrink(around_.c) || shrunk_.size() >= kShrinksMax) {
    return linger(kStaysAfterFailure + random_.up_to(seconds(1)));
  }
  state_ = State::kShrinking;
  shrinking_ = Shrinking{.asks_at = now() + random_.of_any_scale_up_to(milliseconds(300)),
                         .lost_at = kNever};
  around_.wake_in(shrinking_->asks_at - now());
}

void SimulatedRank::say_shrink(ShrinkStep step, std::uint32_t id, const Status& why) {
  const bool is_about_all = step == ShrinkStep::kAsk || step == ShrinkStep::kLeaves;
  around_.arbiter.say_shrink(
      {step, current().members().id(), id, step == ShrinkStep::kAsk ? kPatience : milliseconds(0),
       is_about_all ? current().members().sorted_world_ranks() : std::vector<Rank>(), why});
}

// As shrink.cc does, but that it waits for nothing here.
void SimulatedRank::shrink() {
  if (now() < shrinking_->asks_at) return;
  if (!shrinking_->has_asked) {
    shrinking_->has_asked = true;
    news_.forget_shrink_words(current().members().id());
    shrinking_->lost_at = now() + kPatience + rendezvous::kSuspectTime + kAnswerTime;
    say_shrink(ShrinkStep::kAsk, 0);
    around_.wake_in(shrinking_->lost_at - now());
  }
  const auto word = news_.take_shrink_word(current().members().id());
  if (word) on_word(*word);
  if (!shrinking_) return;
  if (SimulatedCommunicator* const meeting = shrinking_->meeting) {
    meeting->start_calls();
    if (!meeting->failure().ok() && shrinking_->cannot_at == kNever && !shrinking_->is_ready) {
      shrinking_->cannot_at = now() + grace::kDecision;
      around_.wake_in(grace::kDecision);
    } else if (meeting->has_made_all_calls() && !shrinking_->is_ready) {
      shrinking_->is_ready = true;
      say_shrink(ShrinkStep::kReady, shrinking_->id);
    }
  }
  if (now() >= shrinking_->cannot_at) {
    shrinking_->cannot_at = kNever;
    shrinking_->is_ready = true;  // said
    say_shrink(ShrinkStep::kCannot, shrinking_->id, failures_.back().failure);
  }
  if (around_.arbiter.is_lost() || now() >= shrinking_->lost_at) {
    const Status partition = around_.arbiter.partition();
    end_shrinking(partition ? Status(ErrorCode::kRankFailed, "nobody answers") : partition);
  }
}

void SimulatedRank::on_word(const ShrinkMessage& word) {
  switch (word.step) {
    case ShrinkStep::kForm: {
      drop_meeting();
      give_up_dead();
      shrinking_->id = word.id;
      shrinking_->is_ready = false;
      shrinking_->cannot_at = kNever;
      if (!std::binary_search(word.members.begin(), word.members.end(), rank_)) {
        return around_.accuse(whereabouts() + ": is to make a communicator that it is not in");
      }
      shrinking_->meeting = &make_communicator(word.id, word.members, {meeting_call()});
      shrinking_->lost_at = now() + kPatience + rendezvous::kSuspectTime + kAnswerTime;
      return around_.wake_in(shrinking_->lost_at - now());
    }
    case ShrinkStep::kRefused:
      drop_meeting();
      return end_shrinking(word.why);
    case ShrinkStep::kDone:
      if (word.id != shrinking_->id || shrinking_->meeting == nullptr) return;
      if (!shrinking_->is_ready) around_.accuse(whereabouts() + ": hears that it is done");
      return end_shrinking();
    default:
      return around_.accuse(whereabouts() + ": hears what no arbiter says");
  }
}

void SimulatedRank::close(SimulatedCommunicator* communicator) {
  if (communicator->is_closed()) return;
  communicator->close();
  news_.remove(*communicator);
}

void SimulatedRank::give_up_dead() {
  for (const Rank rank : news_.dead()) engine_.messenger().give_up(rank);
}

void SimulatedRank::drop_meeting() {
  if (shrinking_->meeting != nullptr) close(shrinking_->meeting);
  shrinking_->meeting = nullptr;
}

void SimulatedRank::end_shrinking(const Status& refusal) {
  if (!refusal) {
    drop_meeting();
    shrinking_.reset();
    refusal_ = refusal;
    return linger(kStaysAfterFailure + random_.up_to(seconds(1)));
  }
  SimulatedCommunicator& made = *shrinking_->meeting;
  shrunk_.push_back({current().members().id(), made.members().id(), made.members().world_ranks()});
  made.add_calls(adapted_to(around_.c, made.members().size()).operations);
  shrinking_.reset();
  current_ = &made;
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
  if (!current().failure().ok()) say_shrink(ShrinkStep::kLeaves, 0);
  drains_until_ = now() + (current().failure().ok() ? kDrainLimit : kDrainLimitOfFailure);
  around_.wake_in(drains_until_ - now());
  for (const auto& communicator : communicators_) close(communicator.get());
  give_up_dead();
}

void SimulatedRank::leave() {
  const bool has_unsent = engine_.messenger().has_unsent();
  // A client that looks for the arbiter waits for it to say goodbye.
  const bool waits = has_unsent || around_.client.is_seeking();
  if (waits && now() < drains_until_) return;
  if (culprits(around_.c).empty() && has_unsent) {
    around_.accuse(whereabouts() + ": what was sent did not go out");
  }
  SimulatedTransport& transport = around_.fabric.transport(rank_);
  const bool is_lent = transport.lent() > 0;  // close() gives all back
  transport.close(now(), engine_.messenger());
  if (is_lent && culprits(around_.c).empty())
    around_.accuse(whereabouts() + ": payloads are still lent");
  if (engine_.is_running()) around_.accuse(whereabouts() + ": calls still run");
  if (!scratch_.take(kScratchBytes)) around_.accuse(whereabouts() + ": scratch memory is lost");
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
    text += shrinking_->id == 0 ? "waits to go on" : "makes " + std::to_string(shrinking_->id);
    if (shrinking_->meeting != nullptr) text += " and " + shrinking_->meeting->whereabouts();
    return text + " after it " + current().whereabouts();
  }
  if (!failures_.empty()) text += "(" + failures_.back().failure.message() + ") ";
  return text + current().whereabouts();
}

// ---- What the watchdog asks ---------------------------------------------------------------------

milliseconds SimulatedRank::timeout() const { return kCallTimeout; }

void SimulatedRank::probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
                          const CallRecord& record) {
  engine_.messenger().probe(peer, communicator, sequence, record);
}

void SimulatedRank::compare_call(std::uint32_t communicator, std::uint64_t sequence,
                                 const CallRecord& record) {
  engine_.messenger().compare_call(communicator, sequence, record);
}

}  // namespace unisono::sim
