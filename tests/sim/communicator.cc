#include "tests/sim/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/call_check.h"
#include "base/grace_periods.h"

namespace unisono::sim {
namespace {

constexpr std::byte kReused{0x3c};

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

Rank place_of(Rank world_rank, const std::vector<Rank>& members) {
  return static_cast<Rank>(std::find(members.begin(), members.end(), world_rank) - members.begin());
}

}  // namespace

void CallMemory::write(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CallMemory::read(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CallMemory::reuse() {
  for (std::vector<std::byte>& block : blocks_) std::fill(block.begin(), block.end(), kReused);
}

bool CallMemory::is_as_left() const {
  return std::all_of(blocks_.begin(), blocks_.end(), [](const std::vector<std::byte>& block) {
    return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == kReused; });
  });
}

SimulatedCommunicator::SimulatedCommunicator(std::uint32_t id, std::vector<Rank> members,
                                             Rank world_rank, std::vector<Operation> operations,
                                             const Case& c, std::uint64_t seed,
                                             const Surroundings& around)
    : around_(around),
      operations_(std::move(operations)),
      computes_(c.computes),
      random_(seed),
      at_once_(1 + random_.below(static_cast<std::uint64_t>(c.at_once))),
      members_(id, members, place_of(world_rank, members)),
      host_({.engine = around.engine,
             .scratch = around.scratch,
             .members = members_,
             .circumstances = circumstances(members_.size()),
             .group = nullptr,
             .on_disagreement = {}}),
      watchdog_(around.job, members_, host_) {
  around_.engine.messenger().open(id, members_.world_ranks());
  computes_until_ = now() + random_.of_any_scale_up_to(computes_);
}

SimulatedCommunicator::~SimulatedCommunicator() {
  // Of a rank that died in the midst of its calls.
  for (const auto& running : running_) running->request->on_done = nullptr;
}

void SimulatedCommunicator::start_calls() {
  drop_ended();
  while (!failure_.has_cause() && next_call_ < operations_.size() && running_.size() < at_once_) {
    if (now() < computes_until_) return around_.wake_in(computes_until_ - now());
    start_call(next_call_++);
    drop_ended();
    computes_until_ = now() + random_.of_any_scale_up_to(computes_);
  }
}

void SimulatedCommunicator::start_call(std::size_t number) {
  const Operation& operation = operations_[number];
  running_.push_back(std::make_unique<Running>());
  Running& running = *running_.back();
  running.number = number;
  running.memory = std::make_unique<CallMemory>();
  running.part =
      test::make_part(operation.what, members_.self(), members_.size(), running.memory.get());
  running.request = std::make_shared<detail::RequestState>();
  detail::RequestState& request = *running.request;
  request.reset(running.part->call());
  request.call.options.order = host_.selection().order_of(request.call);
  HostBackends::Checked checked;
  const Status valid = check_call(request.call, members_.self(), members_.size(), &checked.shape);
  algorithms::Choice choice;
  choice.algorithm = algorithms::find(operation.what.collective, operation.what.options.algorithm);
  choice.chunks = operation.chunks;
  checked.choice = choice;
  const Result<unisono::Operation*> started =
      valid.ok() ? host_.start(request, checked) : Result<unisono::Operation*>(valid);
  if (!started) {
    around_.accuse(call_text(number) + " could not be started: " + started.error().message());
    running_.pop_back();
    return;
  }
  request.operation = *started;
  request.on_done = [this, &running](Task&) { on_done(running); };
  around_.engine.start(request);
}

void SimulatedCommunicator::on_done(Running& running) {
  detail::RequestState& request = *running.request;
  const bool succeeded = request.operation->status().ok();
  request.backend->end(request, succeeded);
  if (succeeded) {
    ++calls_done_;
    const bool differs = operations_[running.number].differs;
    const std::string wrong = differs ? "" : running.part->check();
    if (!wrong.empty()) around_.accuse(call_text(running.number) + ": " + wrong);
  }
  running.memory->reuse();
}

// Calls that went well have nothing on its way to their buffers; of the others it shows later.
void SimulatedCommunicator::drop_ended() {
  std::erase_if(running_, [&](auto& running) {
    if (!running->request->done.load()) return false;
    if (!running->request->operation->status().ok()) {
      given_back_.push_back(std::move(running->memory));
    }
    return true;
  });
}

// As CommunicatorState does; so do the next three.
void SimulatedCommunicator::tend(const std::vector<bool>& peer_left) {
  if (failure_.is_disputed()) {
    if (failure_.is_overdue(now())) fail(failure_.disputed(), Tell::kEveryone);
    return;
  }
  for (std::size_t i = 0; i < running_.size() && !failure_.has_cause(); ++i) {
    if (running_[i]->request->done.load()) continue;
    const Status seen = watchdog_.look_at(*running_[i]->request, now(), peer_left);
    if (seen.ok()) continue;
    around_.catch_up();  // it may only follow from what the job is about to say
    fail(seen, Tell::kEveryone);
  }
}

void SimulatedCommunicator::fail(Status cause, Tell tell) {
  if (!failure_.set(cause)) return;
  if (cause.code() == ErrorCode::kProtocol) around_.accuse(whereabouts());
  if (tell == Tell::kEveryone) around_.arbiter.report_failure(decision_of(cause));
  end_calls(cause);
  around_.on_failed(*this, cause);
}

void SimulatedCommunicator::disagree(const Status& seen) {
  if (!failure_.dispute(seen, now() + grace::kDecision)) return;
  around_.arbiter.report_differing(decision_of(seen), own_calls());
}

FailureDecision SimulatedCommunicator::decision_of(const Status& cause) const {
  const Rank failed_rank = cause.rank() < 0 ? -1 : members_.world_rank(cause.rank());
  return {cause.code(), failed_rank, members_.id(), 0, cause.message()};
}

void SimulatedCommunicator::note_left(Rank member) {
  if (member >= 0) watchdog_.note_left(member);
}

void SimulatedCommunicator::end_calls(const Status& cause) {
  for (const auto& running : running_) {
    if (!running->request->done.load()) around_.engine.fail(*running->request, cause);
  }
  drop_ended();
}

void SimulatedCommunicator::close() {
  if (std::exchange(is_closed_, true)) return;
  const Status closed(ErrorCode::kClosed, "the communicator was closed on this rank");
  if (failure_.set(closed)) end_calls(closed);
  around_.engine.messenger().close(members_.id());
}

void SimulatedCommunicator::add_waits(std::vector<RunningWait>* waits) {
  for (const auto& running : running_) {
    if (!running->request->done.load()) waits->push_back(watchdog_.wait_of(*running->request));
  }
}

std::string SimulatedCommunicator::call_text(std::size_t number) const {
  return "rank " + std::to_string(members_.world_rank(members_.self())) + ", call " +
         std::to_string(number) + " of communicator " + std::to_string(members_.id()) + " (" +
         test::describe(operations_[number].what) + ")";
}

std::string SimulatedCommunicator::whereabouts() const {
  if (failure_.has_cause()) return "has failed: " + failure().message();
  if (has_made_all_calls()) return "has made all its calls";
  if (running_.empty()) return "computes before call " + std::to_string(next_call_);
  std::string text;
  for (const auto& running : running_) {
    if (running->request->done.load()) continue;
    text += (text.empty() ? "is in call " : ", ") + std::to_string(running->number) + " for";
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
