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
      engine_(*this, around_.c.ranks, 0, IdleChoice("yield", {})),
      scratch_(kScratchBytes),
      peer_left_(static_cast<std::size_t>(around_.c.ranks), false) {
  for (Rank peer = 0; peer < around_.c.ranks; ++peer) {
    engine_.messenger().set_route(peer, around_.fabric.transport(rank));
  }
  current_ = &make_communicator(communicator_id(1, 0, around_.c.ranks), all_ranks(around_.c.ranks),
                                around_.c.operations);
}

SimulatedRank::~SimulatedRank() = default;

SimulatedCommunicator& SimulatedRank::make_communicator(std::uint32_t id, std::vector<Rank> members,
                                                        std::vector<Operation> operations) {
  const SimulatedCommunicator::Surroundings around{around_.schedule, engine_,       scratch_, *this,
                                                   around_.wake_in,  around_.accuse};
  communicators_.push_back(std::make_unique<SimulatedCommunicator>(
      id, std::move(members), rank_, std::move(operations), around_.c, random_.next(), around));
  SimulatedCommunicator& made = *communicators_.back();
  for (const FailureDecision& death : deaths_) tell(death, &made);
  for (const FailureDecision& decision : unknown_decisions_) tell(decision, &made);
  return made;
}

SimulatedCommunicator* SimulatedRank::find(std::uint32_t id) const {
  for (const auto& communicator : communicators_) {
    if (communicator->members().id() == id) return communicator.get();
  }
  return nullptr;
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

// As JobNews::tend() does: the job's word first.
void SimulatedRank::look_around() {
  take_news();
  tell_events();
  const bool runs = std::any_of(communicators_.begin(), communicators_.end(),
                                [](const auto& each) { return each->is_running(); });
  if (now() >= next_tend_) {
    for (std::size_t i = 0; i < communicators_.size(); ++i) {
      const Status seen = communicators_[i]->look_at_calls(peer_left_);
      if (seen.ok()) continue;
      take_news();  // it may only follow from what the job is about to say
      fail(*communicators_[i], seen, true);
    }
    tend_every_ = runs ? std::clamp<Duration>(tend_every_ * 2, kTendEveryMin, kTendEveryMax)
                       : Duration(kTendEveryMin);
    next_tend_ = now() + tend_every_;
  }
  if (runs || state_ == State::kCalling) around_.wake_in(next_tend_ - now());
}

void SimulatedRank::take_news() {
  const rendezvous::ControlSession& session = around_.client.session();
  was_alone_ = was_alone_ || (session.is_lost() && !session.has_left());
  rendezvous::ArbiterNews news = around_.client.session().take_news();
  for (const FailureDecision& decision : news.decisions) hear(decision);
  for (ShrinkMessage& word : news.shrink_words) words_.push_back(std::move(word));
  if (!news.asks_for_waits) return;
  std::vector<rendezvous::WaitMessage> waits;
  for (const auto& communicator : communicators_) communicator->add_waits(&waits);
  around_.client.session().report(rendezvous::encode_waits(waits, around_.c.ranks));
}

void SimulatedRank::hear(const FailureDecision& decision) {
  if (decision.code == ErrorCode::kRankLeft && decision.failed_rank >= 0 &&
      decision.communicator == kEveryCommunicator) {
    peer_left_[static_cast<std::size_t>(decision.failed_rank)] = true;
    return;
  }
  if (decision.communicator == kEveryCommunicator) {
    deaths_.push_back(decision);
  } else if (find(decision.communicator) == nullptr) {
    unknown_decisions_.push_back(decision);
  }
  for (std::size_t i = 0; i < communicators_.size(); ++i) tell(decision, communicators_[i].get());
}

void SimulatedRank::tell(const FailureDecision& decision, SimulatedCommunicator* communicator) {
  const Rank member = communicator->members().find(decision.failed_rank);
  const bool concerned = decision.communicator == kEveryCommunicator
                             ? member >= 0
                             : decision.communicator == communicator->members().id();
  if (concerned) fail(*communicator, Status(decision.code, decision.message, member), false);
}

void SimulatedRank::tell_events() {
  for (const Event& event : std::exchange(events_, {})) {
    if (event.code != ErrorCode::kRankLeft) {
      around_.client.session().report_broken_link(
          event.peer, Status(event.code, event.message, event.peer), now());
      continue;
    }
    SimulatedCommunicator* const meant = find(event.communicator);
    if (meant != nullptr) meant->note_left(event.peer);
  }
}

void SimulatedRank::fail(SimulatedCommunicator& communicator, const Status& cause,
                         bool tell_everyone) {
  if (!communicator.failure().ok()) return;
  const Rank world_rank = cause.rank() < 0 ? -1 : communicator.members().world_rank(cause.rank());
  communicator.fail(cause);
  failures_.push_back(
      {communicator.members().id(), Status(cause.code(), cause.message(), world_rank)});
  if (!tell_everyone) return;
  around_.client.session().report_lasting(
      rendezvous::encode(rendezvous::MessageType::kFailure,
                         FailureDecision{cause.code(), world_rank, communicator.members().id(), 0,
                                         cause.message()}),
      now());
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
  around_.client.session().say_shrink(
      {step, current().members().id(), id, step == ShrinkStep::kAsk ? kPatience : milliseconds(0),
       is_about_all ? current().members().sorted_world_ranks() : std::vector<Rank>(), why});
}

// As shrink.cc does, but that it waits for nothing here.
void SimulatedRank::shrink() {
  if (now() < shrinking_->asks_at) return;
  if (!shrinking_->has_asked) {
    shrinking_->has_asked = true;
    words_.clear();
    shrinking_->lost_at = now() + kPatience + rendezvous::kSuspectTime + kAnswerTime;
    say_shrink(ShrinkStep::kAsk, 0);
    around_.wake_in(shrinking_->lost_at - now());
  }
  std::optional<ShrinkMessage> latest;
  for (ShrinkMessage& word : std::exchange(words_, {})) {
    if (word.communicator == current().members().id()) latest = std::move(word);
  }
  if (latest) on_word(*latest);
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
    say_shrink(ShrinkStep::kCannot, shrinking_->id, failures_.back().second);
  }
  if (around_.client.session().is_lost() || now() >= shrinking_->lost_at) end_shrinking(true);
}

void SimulatedRank::on_word(const ShrinkMessage& word) {
  switch (word.step) {
    case ShrinkStep::kForm: {
      drop_meeting();
      for (const FailureDecision& death : deaths_) {
        if (death.failed_rank >= 0) engine_.messenger().give_up(death.failed_rank);
      }
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
      return end_shrinking(true);
    case ShrinkStep::kDone:
      if (word.id != shrinking_->id || shrinking_->meeting == nullptr) return;
      if (!shrinking_->is_ready) around_.accuse(whereabouts() + ": hears that it is done");
      return end_shrinking(false);
    default:
      return around_.accuse(whereabouts() + ": hears what no arbiter says");
  }
}

void SimulatedRank::drop_meeting() {
  if (shrinking_->meeting != nullptr) shrinking_->meeting->close();
  shrinking_->meeting = nullptr;
}

void SimulatedRank::end_shrinking(bool refused) {
  if (refused) {
    drop_meeting();
    shrinking_.reset();
    is_refused_ = true;
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
  for (const auto& communicator : communicators_) communicator->close();
  for (const FailureDecision& death : deaths_) {
    if (death.failed_rank >= 0) engine_.messenger().give_up(death.failed_rank);
  }
}

void SimulatedRank::leave() {
  const bool has_unsent = engine_.messenger().has_unsent();
  // A client that looks for the arbiter waits for it to say goodbye.
  const bool waits = has_unsent || around_.client.session().is_seeking();
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
  around_.client.leave();
  around_.on_left();
}

std::string SimulatedRank::whereabouts() const {
  std::string text = "rank " + std::to_string(rank_) + " ";
  if (state_ == State::kShrinking) {
    text += shrinking_->id == 0 ? "waits to go on" : "makes " + std::to_string(shrinking_->id);
    if (shrinking_->meeting != nullptr) text += " and " + shrinking_->meeting->whereabouts();
    return text + " after it " + current().whereabouts();
  }
  if (!failures_.empty()) text += "(" + failures_.back().second.message() + ") ";
  return text + current().whereabouts();
}

// ---- What the messenger tells -------------------------------------------------------------------

void SimulatedRank::mismatch(std::uint32_t, Rank peer, const CallRecord& theirs,
                             const CallRecord& ours) {
  around_.accuse("rank " + std::to_string(rank_) + " called " + describe(ours) + " while rank " +
                 std::to_string(peer) + " called " + describe(theirs));
}

void SimulatedRank::counts_differ(std::uint32_t, Rank peer, std::string what) {
  around_.accuse("rank " + std::to_string(rank_) + " says that rank " + std::to_string(peer) + " " +
                 what);
}

// What comes for a call that has failed here is refused and counts as one.
void SimulatedRank::violation(std::uint32_t communicator, Rank peer, std::string what) {
  const SimulatedCommunicator* const meant = find(communicator);
  if (meant == nullptr || !meant->failure().ok()) return;
  around_.accuse("rank " + std::to_string(rank_) + " says that rank " + std::to_string(peer) + " " +
                 what);
}

void SimulatedRank::link_closed(Rank peer, const Status& cause) {
  if (cause.ok()) {
    peer_left_[static_cast<std::size_t>(peer)] = true;
  } else {
    events_.push_back({kEveryCommunicator, cause.code(), peer, cause.message()});
  }
}

void SimulatedRank::left(std::uint32_t communicator, Rank peer) {
  events_.push_back({communicator, ErrorCode::kRankLeft, peer, ""});
}

const CallRecord* SimulatedRank::find_call(std::uint32_t communicator,
                                           std::uint64_t sequence) const {
  const SimulatedCommunicator* const meant = find(communicator);
  return meant == nullptr ? nullptr : meant->find_call(sequence);
}

void SimulatedRank::stranger(std::uint32_t, Rank peer) {
  around_.accuse("rank " + std::to_string(rank_) + " takes rank " + std::to_string(peer) +
                 " for no member");
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

void SimulatedRank::report_waiting(const RunningWait& wait) {
  around_.client.session().report_waiting(
      {wait.communicator, wait.sequence, wait.waiting_for, {}, {}});
}

void SimulatedRank::report_timeout(const RunningWait& wait, const std::vector<Rank>& members,
                                   const std::string& call) {
  std::vector<Rank> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  around_.client.session().report_lasting(
      rendezvous::encode_wait(rendezvous::MessageType::kTimedOut,
                              {wait.communicator, wait.sequence, wait.waiting_for, sorted, call},
                              around_.c.ranks),
      now());
}

}  // namespace unisono::sim
