#include "tests/sim/rank.h"

#include <algorithm>
#include <utility>

#include "backend/call_check.h"
#include "base/grace_periods.h"
#include "rendezvous/control_messages.h"

namespace unisono::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kCommunicator = 1 << 8;
constexpr std::size_t kScratchBytes = 1 << 26;
constexpr milliseconds kCallTimeout{10'000};
// As runtime.cc has it: how long what was sent may take to go out at the end of a job.
constexpr Duration kDrainLimit = seconds(2), kDrainLimitOfFailure = milliseconds(100);
// A rank whose communicator has failed stays until the others can have heard of it.
constexpr Duration kStaysAfterFailure = seconds(5);
constexpr Duration kTendEveryMin = milliseconds(1), kTendEveryMax = milliseconds(50);
constexpr std::size_t kTypeAt = 4, kBodyAt = 5;  // in a control message

std::vector<Rank> all_ranks(int size) {
  std::vector<Rank> ranks(static_cast<std::size_t>(size));
  for (Rank rank = 0; rank < size; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
  return ranks;
}

CallSelection::Circumstances circumstances(int ranks) {
  static const algorithms::SelectionTable table = algorithms::SelectionTable::defaults();
  static const CallSelection::Hints hints;
  static const algorithms::LinkFacts links;
  return {.table = table,
          .hints = hints,
          .ranks = ranks,
          .link = algorithms::Link::kTcp,
          .links = links};
}

}  // namespace

SimulatedRank::SimulatedRank(Rank rank, Surroundings around, std::uint64_t seed)
    : rank_(rank),
      around_(std::move(around)),
      random_(seed),
      engine_(*this, around_.c.ranks, 0, IdleChoice("yield", {})),
      scratch_(kScratchBytes),
      members_(kCommunicator, all_ranks(around_.c.ranks), rank),
      host_({.engine = engine_,
             .scratch = scratch_,
             .members = members_,
             .circumstances = circumstances(around_.c.ranks),
             .group = nullptr,
             .on_disagreement = {}}),
      watchdog_(*this, members_, host_),
      peer_left_(static_cast<std::size_t>(around_.c.ranks), false) {
  for (Rank peer = 0; peer < around_.c.ranks; ++peer) {
    engine_.messenger().set_route(peer, around_.fabric.transport(rank));
  }
  engine_.messenger().open(kCommunicator, members_.world_ranks());
  computes_until_ = now() + random_.of_any_scale_up_to(around_.c.computes);
}

SimulatedRank::~SimulatedRank() {
  // Of a rank that died in the midst of its calls.
  for (const auto& running : running_) running->request->on_done = nullptr;
}

void SimulatedRank::beat() {
  if (state_ == State::kLeft) return;
  const Engine::Lock lock(engine_);
  engine_.poll();
  look_around();
  start_calls();
  look_for_the_end();
}

// As JobNews::tend() does: the job's word first.
void SimulatedRank::look_around() {
  take_news();
  if (now() < next_tend_ && events_.empty()) return;
  tell_events();
  for (std::size_t i = 0; i < running_.size() && failure_.ok(); ++i) {
    if (running_[i]->request->done) continue;
    const Status seen = watchdog_.look_at(*running_[i]->request, now(), peer_left_);
    if (seen.ok()) continue;
    take_news();  // it may only follow from what the job is about to say
    fail(seen, true);
  }
  if (running_.empty()) return;
  tend_every_ = std::clamp<Duration>(tend_every_ * 2, kTendEveryMin, kTendEveryMax);
  next_tend_ = now() + tend_every_;
  around_.wake_in(tend_every_);
}

void SimulatedRank::take_news() {
  while (!news_.empty()) {
    const std::string bytes = std::move(news_.front());
    news_.pop_front();
    const auto type = static_cast<rendezvous::MessageType>(bytes[kTypeAt]);
    const auto body = std::string_view(bytes).substr(kBodyAt);
    if (type == rendezvous::MessageType::kAskWaits) {
      std::vector<rendezvous::WaitMessage> waits;
      for (const auto& running : running_) {
        if (running->request->done) continue;
        const RunningWait wait = watchdog_.wait_of(*running->request);
        waits.push_back({wait.communicator, wait.sequence, wait.waiting_for, {}, {}});
      }
      around_.report(rendezvous::encode_waits(waits, around_.c.ranks));
      continue;
    }
    if (type != rendezvous::MessageType::kDecision) continue;
    const auto decision = rendezvous::decode_decision(body, around_.c.ranks);
    if (!decision) {
      around_.accuse("the arbiter sent what cannot be read");
      continue;
    }
    if (!ledger_.admit(*decision)) continue;
    const bool of_rank = decision->communicator == kEveryCommunicator && decision->failed_rank >= 0;
    if (of_rank && decision->code == ErrorCode::kRankLeft) {
      peer_left_[static_cast<std::size_t>(decision->failed_rank)] = true;
      continue;
    }
    if (of_rank) dead_.push_back(decision->failed_rank);
    fail(Status(decision->code, decision->message, decision->failed_rank), false);
  }
}

void SimulatedRank::tell_events() {
  for (const Event& event : std::exchange(events_, {})) {
    if (event.code == ErrorCode::kRankLeft) {
      watchdog_.note_left(event.peer);
    } else {
      around_.report(
          rendezvous::encode(rendezvous::BrokenLinkMessage{event.peer, event.message, event.code}));
    }
  }
}

// The first failure counts. The buffers are the caller's again at once.
void SimulatedRank::fail(const Status& cause, bool tell_everyone) {
  if (!failure_.ok()) return;
  failure_ = cause;
  if (tell_everyone) {
    around_.report(rendezvous::encode(
        rendezvous::MessageType::kFailure,
        FailureDecision{cause.code(), cause.rank(), kCommunicator, 0, cause.message()}));
  }
  for (const auto& running : running_) {
    if (!running->request->done) engine_.fail(*running->request, cause);
  }
  drop_ended();
}

void SimulatedRank::start_calls() {
  drop_ended();
  const std::vector<Operation>& operations = around_.c.operations;
  while (state_ == State::kCalling && failure_.ok() && next_call_ < operations.size() &&
         running_.size() < static_cast<std::size_t>(around_.c.at_once)) {
    if (now() < computes_until_) return around_.wake_in(computes_until_ - now());
    start_call(next_call_++);
    drop_ended();
    computes_until_ = now() + random_.of_any_scale_up_to(around_.c.computes);
  }
}

void SimulatedRank::start_call(std::size_t number) {
  const Operation& operation = around_.c.operations[number];
  running_.push_back(std::make_unique<Running>());
  Running& running = *running_.back();
  running.number = number;
  running.part = test::make_part(operation.what, rank_, around_.c.ranks);
  running.request = std::make_shared<detail::RequestState>();
  detail::RequestState& request = *running.request;
  request.reset(running.part->call());
  request.call.options.order = host_.selection().order_of(request.call);
  HostBackends::Checked checked;
  const Status valid = check_call(request.call, rank_, around_.c.ranks, &checked.shape);
  algorithms::Choice choice;
  choice.algorithm = algorithms::find(operation.what.collective, operation.what.options.algorithm);
  choice.chunks = operation.chunks;
  checked.choice = choice;
  const Result<unisono::Operation*> started =
      valid.ok() ? host_.start(request, checked) : Result<unisono::Operation*>(valid);
  if (!started) {
    around_.accuse("rank " + std::to_string(rank_) + " could not start call " +
                   std::to_string(number) + " (" + test::describe(operation.what) +
                   "): " + started.error().message());
    running_.pop_back();
    return;
  }
  request.operation = *started;
  request.on_done = [this, &running](Task&) { on_done(running); };
  tend_every_ = Duration::zero();
  next_tend_ = now();
  around_.wake_in(Duration::zero());
  engine_.start(request);
}

void SimulatedRank::on_done(Running& running) {
  detail::RequestState& request = *running.request;
  const bool succeeded = request.operation->status().ok();
  request.backend->end(request, succeeded);
  if (!succeeded) return;
  ++calls_done_;
  const std::string wrong = running.part->check();
  if (wrong.empty()) return;
  around_.accuse("rank " + std::to_string(rank_) + ", call " + std::to_string(running.number) +
                 " (" + test::describe(around_.c.operations[running.number].what) + "): " + wrong);
}

void SimulatedRank::drop_ended() {
  std::erase_if(running_, [](const auto& running) { return running->request->done.load(); });
}

void SimulatedRank::look_for_the_end() {
  if (state_ == State::kCalling) {
    const bool all_done = next_call_ == around_.c.operations.size() && running_.empty();
    if (failure_.ok() && !all_done) return;
    state_ = State::kLingering;
    leaves_at_ = now() + (failure_.ok() ? random_.of_any_scale_up_to(seconds(1))
                                        : kStaysAfterFailure + random_.up_to(seconds(1)));
    around_.wake_in(leaves_at_ - now());
  }
  if (state_ == State::kLingering && now() >= leaves_at_) {
    state_ = State::kDraining;
    drains_until_ = now() + (failure_.ok() ? kDrainLimit : kDrainLimitOfFailure);
    around_.wake_in(drains_until_ - now());
    Messenger& messenger = engine_.messenger();
    messenger.close(kCommunicator);
    for (const Rank dead : dead_) messenger.give_up(dead);
  }
  if (state_ != State::kDraining) return;
  if (!engine_.messenger().has_unsent() || now() >= drains_until_) leave();
}

void SimulatedRank::leave() {
  SimulatedTransport& transport = around_.fabric.transport(rank_);
  if (culprits(around_.c).empty() && engine_.messenger().has_unsent()) {
    around_.accuse(whereabouts() + ": what was sent did not go out");
  }
  transport.close(now(), engine_.messenger());
  if (transport.lent() > 0) around_.accuse(whereabouts() + ": payloads are still lent");
  if (engine_.is_running()) around_.accuse(whereabouts() + ": calls still run");
  if (!scratch_.take(kScratchBytes)) around_.accuse(whereabouts() + ": scratch memory is lost");
  state_ = State::kLeft;
  around_.leave();
}

std::string SimulatedRank::whereabouts() const {
  std::string text = "rank " + std::to_string(rank_);
  if (!failure_.ok()) return text + " has failed: " + failure_.message();
  if (state_ != State::kCalling) return text + " has made all its calls";
  for (const auto& running : running_) {
    if (running->request->done) continue;
    text += " is in call " + std::to_string(running->number) + " and waits for";
    std::vector<Rank> waits;
    running->request->operation->waiting_for(&waits);
    for (const Rank peer : waits) text += " " + std::to_string(peer);
  }
  return running_.empty() ? text + " computes before call " + std::to_string(next_call_) : text;
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
void SimulatedRank::violation(std::uint32_t, Rank peer, std::string what) {
  if (!failure_.ok()) return;
  around_.accuse("rank " + std::to_string(rank_) + " says that rank " + std::to_string(peer) + " " +
                 what);
}

void SimulatedRank::link_closed(Rank peer, const Status& cause) {
  if (cause.ok()) {
    peer_left_[static_cast<std::size_t>(peer)] = true;
  } else {
    events_.push_back({cause.code(), peer, cause.message()});
  }
}

void SimulatedRank::left(std::uint32_t, Rank peer) {
  events_.push_back({ErrorCode::kRankLeft, peer, ""});
}

const CallRecord* SimulatedRank::find_call(std::uint32_t, std::uint64_t sequence) const {
  return host_.calls().find(sequence);
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
  around_.report(rendezvous::encode_wait(
      rendezvous::MessageType::kWaiting,
      {wait.communicator, wait.sequence, wait.waiting_for, {}, {}}, around_.c.ranks));
}

void SimulatedRank::report_timeout(const RunningWait& wait, const std::vector<Rank>& members,
                                   const std::string& call) {
  around_.report(rendezvous::encode_wait(
      rendezvous::MessageType::kTimedOut,
      {wait.communicator, wait.sequence, wait.waiting_for, members, call}, around_.c.ranks));
}

}  // namespace unisono::sim
