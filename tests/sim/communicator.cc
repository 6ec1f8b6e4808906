#include "tests/sim/communicator.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "backend/call_check.h"
#include "tests/sim/interleaving.h"

namespace unisono::sim {
namespace {

constexpr std::byte kReused{0x3c};

CallSelection::Circumstances circumstances(int ranks, const Case& c, Rank world_rank) {
  static const algorithms::SelectionTable table = algorithms::SelectionTable::defaults();
  static const algorithms::Hints hints;
  static const algorithms::LinkFacts links;
  return {.table = table,
          .hints = hints,
          .ranks = ranks,
          .link = c.sharing == Sharing::kNone ? algorithms::Link::kTcp : algorithms::Link::kShm,
          .shared_memory = c.sharing != Sharing::kNone,
          .links = links,
          .access = access_of(c, world_rank)};
}

Rank place_of(Rank world_rank, const std::vector<Rank>& members) {
  return static_cast<Rank>(std::find(members.begin(), members.end(), world_rank) - members.begin());
}

std::unique_ptr<native::Group> group_of(HostMemory* memory, std::uint32_t id,
                                        const std::vector<Rank>& members, Rank world_rank) {
  return memory == nullptr ? nullptr : memory->open(id, members, world_rank);
}

}  // namespace

std::byte* CallMemory::take(std::size_t bytes) {
  std::byte* block = nullptr;
  if (heap_ == nullptr) {
    block = new std::byte[bytes]();
  } else if (const Result<void*> allocated = heap_->allocate(std::max<std::size_t>(bytes, 1))) {
    block = static_cast<std::byte*>(*allocated);
  } else {
    throw std::runtime_error(allocated.error().message());
  }
  blocks_.emplace_back(block, bytes);
  return block;
}

void CallMemory::clear() {
  for (const std::span<std::byte> block : blocks_) {
    if (heap_ == nullptr) {
      delete[] block.data();
    } else {
      static_cast<void>(heap_->release(block.data()));
    }
  }
  blocks_.clear();
}

void CallMemory::write(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CallMemory::read(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CallMemory::reuse() {
  for (const std::span<std::byte> block : blocks_) std::fill(block.begin(), block.end(), kReused);
}

bool CallMemory::is_as_left() const {
  return std::all_of(blocks_.begin(), blocks_.end(), [](const std::span<std::byte> block) {
    return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == kReused; });
  });
}

SimulatedCommunicator::SimulatedCommunicator(std::uint32_t id, std::vector<Rank> members,
                                             Rank world_rank, std::vector<Operation> operations,
                                             const Case& c, std::uint64_t seed,
                                             const Surroundings& around)
    : WatchedCommunicator({.engine = around.engine,
                           .scratch = around.scratch,
                           .news = around.news,
                           .arbiter = around.arbiter,
                           .job = around.job},
                          Members(id, members, place_of(world_rank, members)),
                          circumstances(static_cast<int>(members.size()), c, world_rank),
                          group_of(around.memory, id, members, world_rank)),
      surroundings_(around),
      computes_(c.computes),
      random_(seed),
      at_once_(c.takes_turns ? 1 : 1 + random_.below(static_cast<std::uint64_t>(c.at_once))) {
  add_calls(operations);
  computes_until_ = now() + random_.of_any_scale_up_to(computes_);
}

void SimulatedCommunicator::add_calls(const std::vector<Operation>& operations) {
  for (const Operation& operation : operations) {
    const std::size_t number = operations_.size();
    operations_.push_back(operation);
    if (!operation.is_exchange()) {
      calls_.push_back({number});
      continue;
    }
    for (const Message& message :
         messages_of(operation.exchange, operation.what.root, number, rank(), size())) {
      calls_.push_back({number, message});
    }
  }
}

void SimulatedCommunicator::start_calls(const std::function<bool()>& may_begin) {
  drop_ended();
  if (usable().ok() && is_splitting()) go_on_with_split();
  while (usable().ok() && !is_splitting() && next_call_ < calls_.size() &&
         running_.size() < at_once_ && may_begin()) {
    if (now() < computes_until_) return surroundings_.wake_in(computes_until_ - now());
    start_call(calls_[next_call_++]);
    drop_ended();
    computes_until_ = now() + random_.of_any_scale_up_to(computes_);
  }
}

void SimulatedCommunicator::start_call(const PlannedCall& call) {
  const Operation& operation = operations_[call.operation];
  if (operation.is_split()) return begin_split(operation);
  shm::SharedSegment* const heap =
      operation.in_heap ? &surroundings_.memory->of(members().world_rank(rank())) : nullptr;
  running_.push_back(std::make_unique<Running>(Running{call, std::make_unique<CallMemory>(heap)}));
  Running& running = *running_.back();
  if (!call.message) {
    test::CollectiveCase what = operation.what;
    // Only a call without a hint may go the short way.
    if (operation.blocks) what.options.algorithm = {};
    running.part = test::make_part(what, rank(), size(), running.memory.get());
    return start_collective(running);
  }
  auto part = std::make_unique<MessagePart>(operation.what, operation.exchange, *call.message,
                                            rank(), size(), *running.memory);
  running.message = part.get();
  running.part = std::move(part);
  start_message(running);
}

// As CommunicatorState::start(), but that the case says what runs the call.
void SimulatedCommunicator::start_collective(Running& running) {
  const Operation& operation = operations_[running.what.operation];
  HostBackends::Checked checked;
  if (operation.is_native()) {
    if (!operation.blocks || !begin_blocking(running, &checked)) start(running, checked);
    return;
  }
  algorithms::Choice choice;
  choice.algorithm = algorithms::find(operation.what.collective, operation.what.options.algorithm);
  choice.chunks = operation.chunks;
  checked.choice = choice;
  start(running, checked);
}

// As CommunicatorState::try_run(). False where the call has not begun.
bool SimulatedCommunicator::begin_blocking(Running& running, HostBackends::Checked* checked) {
  const Call& call = running.part->call();
  Status failure;
  switch (host_.try_run(call, checked, &failure)) {
    case Tried::kNotBegun:
      return false;
    case Tried::kOver:
      judge(running, Status());
      return true;
    case Tried::kRefused:
      surroundings_.accuse(call_text(running.what) + " is refused: " + failure.message());
      return true;
    case Tried::kFailed:
      fail(naming_rank(failure), Tell::kEveryone);
      judge(running, this->failure());
      given_back_.push_back(std::move(running.memory));
      return true;
    case Tried::kGoesOn:
      break;
  }
  detail::RequestState& request = prepare(call);
  running.request = note_begun(request, host_.go_on(request));
  surroundings_.engine.start(request);
  return true;
}

void SimulatedCommunicator::start_message(Running& running) {
  if (!operations_[running.what.operation].exchange.blocks) {
    return start(running, HostBackends::Checked());
  }
  const Call& call = running.part->call();
  running.request = begin_message(call, 1);
  if (running.request != nullptr) return surroundings_.engine.start(*running.request);
  running.message->note(call.peer, call.count * size_of(call.type));
  judge(running, Status());
}

void SimulatedCommunicator::start(Running& running, const HostBackends::Checked& unchecked) {
  HostBackends::Checked checked = unchecked;
  const Call& call = running.part->call();
  const Status valid = check_call(call, rank(), size(), &checked.shape);
  detail::RequestState& request = prepare(call);
  running.request = &request;
  const Result<unisono::Operation*> started =
      valid.ok() ? host_.start(request, checked) : Result<unisono::Operation*>(valid);
  if (!started) {
    return surroundings_.accuse(call_text(running.what) +
                                " could not be started: " + started.error().message());
  }
  surroundings_.engine.start(*note_begun(request, *started));
}

void SimulatedCommunicator::on_over(detail::RequestState& request) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& each) { return each->request == &request; });
  if (found == running_.end()) {
    request.held = false;
    const auto on_over = others_.extract(&request);
    return on_over.mapped()(request.outcome);
  }
  Running& running = **found;
  if (running.message != nullptr) {
    const TaggedResult& result = request.at_peers().message.result();
    running.message->note(members().find(result.peer), result.bytes);
  }
  judge(running, request.outcome);
}

void SimulatedCommunicator::judge(Running& running, const Status& outcome) {
  const auto accuse = [&](const std::string& what) {
    surroundings_.accuse(call_text(running.what) + ": " + what);
  };
  const bool is_refused = running.message != nullptr && running.message->is_refused();
  if (outcome.ok() && is_refused) accuse("a message is taken that is longer than its room");
  if (outcome.code() == ErrorCode::kInvalidArgument && !is_refused) accuse(outcome.message());
  if (outcome.ok() && !is_refused) {
    ++(running.message == nullptr ? calls_done_ : messages_done_);
    const Operation& operation = operations_[running.what.operation];
    const std::string wrong = operation.differs ? "" : running.part->check();
    if (!wrong.empty()) accuse(wrong);
    const bool is_of_any = running.message != nullptr && running.part->call().peer == kAnyRank &&
                           operation.exchange.pattern == Exchange::Pattern::kToOne;
    if (is_of_any && !heard_.insert({running.part->call().tag, running.message->source()}).second) {
      accuse("a message comes twice");
    }
  }
  running.memory->reuse();
}

// The production's choice runs it.
void SimulatedCommunicator::begin(const Call& call, std::function<void(const Status&)> on_over) {
  HostBackends::Checked checked;
  const Status valid = check_call(call, rank(), size(), &checked.shape);
  detail::RequestState& request = prepare(call);
  others_[&request] = std::move(on_over);
  const Result<unisono::Operation*> started =
      valid.ok() ? host_.start(request, checked) : Result<unisono::Operation*>(valid);
  if (!started) return surroundings_.accuse("cannot call: " + started.error().message());
  surroundings_.engine.start(*note_begun(request, *started));
}

// ---- Splitting ----------------------------------------------------------------------------------

void SimulatedCommunicator::begin_split(const Operation& operation) {
  Random random(operation.colors + static_cast<std::uint64_t>(rank()));
  const auto color =
      static_cast<int>(random.below(static_cast<std::uint64_t>(operation.parts) + 1)) - 1;
  begin_split(color, static_cast<int>(random.below(4)));
}

void SimulatedCommunicator::begin_split(int color, int key) {
  splitting_ = std::make_unique<Splitting>();
  splitting_->vote = detail::make_vote(color, key, {});
  share(splitting_->vote, &splitting_->votes);
}

// As split() of src/comm, but that no part shares memory.
void SimulatedCommunicator::go_on_with_split() {
  if (splitting_->is_in_call) return;
  switch (splitting_->step) {
    case Splitting::Step::kVotes:
      splitting_->step = Splitting::Step::kOffers;
      splitting_->part.emplace(splitting_->votes, rank());
      if (splitting_->part->leads()) splitting_->offer.id = surroundings_.take_id();
      share(splitting_->offer, &splitting_->offers);
      break;
    case Splitting::Step::kOffers:
      splitting_->step = Splitting::Step::kOpened;
      splitting_->agreed = splitting_->part->agreed(splitting_->offers);
      share(splitting_->opened, &splitting_->all_opened);
      break;
    case Splitting::Step::kOpened:
      splitting_->step = Splitting::Step::kOver;
      [[fallthrough]];
    case Splitting::Step::kOver:
      return end_split();
  }
  if (is_splitting()) go_on_with_split();
}

template <typename T>
void SimulatedCommunicator::share(const T& mine, std::vector<T>* all) {
  all->resize(static_cast<std::size_t>(size()));
  splitting_->is_in_call = true;
  begin({.collective = Collective::kAllGather,
         .in = &mine,
         .out = all->data(),
         .count = sizeof(T),
         .type = DataType::kUint8},
        [this](const Status&) { splitting_->is_in_call = false; });
}

void SimulatedCommunicator::end_split() {
  const std::unique_ptr<Splitting> split = std::move(splitting_);
  std::vector<Rank> world_ranks;
  for (const Rank each : split->part->ranks()) world_ranks.push_back(members().world_rank(each));
  if (!world_ranks.empty()) surroundings_.on_split(split->agreed.id, std::move(world_ranks));
}

// Calls that went well have nothing on its way to their buffers; of the others it shows later.
void SimulatedCommunicator::drop_ended() {
  std::erase_if(running_, [&](auto& running) {
    if (running->request == nullptr) return true;  // a message that was over at once
    detail::RequestState& request = *running->request;
    if (!request.done.load()) return false;
    if (!request.outcome.ok()) given_back_.push_back(std::move(running->memory));
    request.held = false;
    return true;
  });
}

void SimulatedCommunicator::on_failing(const Status& cause) {
  if (cause.code() == ErrorCode::kProtocol) surroundings_.accuse(whereabouts());
  if (is_splitting()) fail_part(splitting_->agreed.id, cause);
  WatchedCommunicator::on_failing(cause);
  surroundings_.on_failed(*this, cause);
}

bool SimulatedCommunicator::waits_for_any() const {
  return std::any_of(running_.begin(), running_.end(), [](const auto& running) {
    return running->message != nullptr && running->part->call().peer == kAnyRank &&
           running->request != nullptr && !running->request->done.load();
  });
}

void SimulatedCommunicator::close() {
  if (closed()) return;
  closed_at_ = now();
  close_here();
  drop_ended();
  // The last member gives the memory back, in which nothing is to be stored afterwards: it knows by
  // accesses that nobody hears of.
  Interleaving::in_one_go([this] { host_.shared_memory().close(); });
}

std::string SimulatedCommunicator::call_text(const PlannedCall& call) const {
  return "rank " + std::to_string(members().world_rank(rank())) + ", call " +
         std::to_string(call.operation) + " of communicator " + std::to_string(members().id()) +
         " (" + describe(operations_[call.operation]) + ")";
}

std::string SimulatedCommunicator::whereabouts() const {
  if (!usable().ok()) return "has failed: " + failure().message();
  if (has_made_all_calls()) return "has made all its calls";
  if (is_splitting()) return "splits communicator " + std::to_string(members().id());
  if (running_.empty()) return "computes before call " + std::to_string(next_call_);
  std::string text;
  for (const auto& running : running_) {
    if (running->request == nullptr || running->request->done.load()) continue;
    text += (text.empty() ? "is in call " : ", ") + std::to_string(running->what.operation);
    text += running->message == nullptr           ? " for"
            : running->message->message().is_send ? " (send) for"
                                                  : " (receive) for";
    std::vector<Rank> waits;
    running->request->operation->waiting_for(&waits);
    for (const Rank peer : waits) text += " " + std::to_string(peer);
  }
  return text;
}

bool SimulatedCommunicator::are_buffers_untouched() const {
  return std::all_of(given_back_.begin(), given_back_.end(),
                     [](const auto& memory) { return memory->is_as_left(); });
}

}  // namespace unisono::sim
