#include "tests/sim/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/call_check.h"

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
    : WatchedCommunicator({.engine = around.engine,
                           .scratch = around.scratch,
                           .news = around.news,
                           .arbiter = around.arbiter,
                           .job = around.job},
                          Members(id, members, place_of(world_rank, members)),
                          circumstances(static_cast<int>(members.size())), nullptr),
      surroundings_(around),
      operations_(std::move(operations)),
      computes_(c.computes),
      random_(seed),
      at_once_(1 + random_.below(static_cast<std::uint64_t>(c.at_once))) {
  computes_until_ = now() + random_.of_any_scale_up_to(computes_);
}

void SimulatedCommunicator::start_calls() {
  drop_ended();
  while (usable().ok() && next_call_ < operations_.size() && running_.size() < at_once_) {
    if (now() < computes_until_) return surroundings_.wake_in(computes_until_ - now());
    start_call(next_call_++);
    drop_ended();
    computes_until_ = now() + random_.of_any_scale_up_to(computes_);
  }
}

// As CommunicatorState::start(), but that the case says what runs the call.
void SimulatedCommunicator::start_call(std::size_t number) {
  const Operation& operation = operations_[number];
  running_.push_back(std::make_unique<Running>());
  Running& running = *running_.back();
  running.number = number;
  running.memory = std::make_unique<CallMemory>();
  running.part = test::make_part(operation.what, rank(), size(), running.memory.get());
  const Call call = running.part->call();
  HostBackends::Checked checked;
  const Status valid = check_call(call, rank(), size(), &checked.shape);
  algorithms::Choice choice;
  choice.algorithm = algorithms::find(operation.what.collective, operation.what.options.algorithm);
  choice.chunks = operation.chunks;
  checked.choice = choice;
  detail::RequestState& request = *(running.request = &prepare(call));
  const Result<unisono::Operation*> started =
      valid.ok() ? host_.start(request, checked) : Result<unisono::Operation*>(valid);
  if (!started) {
    surroundings_.accuse(call_text(number) + " could not be started: " + started.error().message());
    running_.pop_back();
    return;
  }
  surroundings_.engine.start(*note_begun(request, *started));
}

void SimulatedCommunicator::on_over(detail::RequestState& request) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& each) { return each->request == &request; });
  Running& running = **found;
  if (request.outcome.ok()) {
    ++calls_done_;
    const bool differs = operations_[running.number].differs;
    const std::string wrong = differs ? "" : running.part->check();
    if (!wrong.empty()) surroundings_.accuse(call_text(running.number) + ": " + wrong);
  }
  running.memory->reuse();
}

// Calls that went well have nothing on its way to their buffers; of the others it shows later.
void SimulatedCommunicator::drop_ended() {
  std::erase_if(running_, [&](auto& running) {
    detail::RequestState& request = *running->request;
    if (!request.done.load()) return false;
    if (!request.outcome.ok()) given_back_.push_back(std::move(running->memory));
    request.held = false;
    return true;
  });
}

void SimulatedCommunicator::on_failing(const Status& cause) {
  if (cause.code() == ErrorCode::kProtocol) surroundings_.accuse(whereabouts());
  surroundings_.on_failed(*this, cause);
}

void SimulatedCommunicator::close() {
  if (closed()) return;
  close_here();
  drop_ended();
}

std::string SimulatedCommunicator::call_text(std::size_t number) const {
  return "rank " + std::to_string(members().world_rank(rank())) + ", call " +
         std::to_string(number) + " of communicator " + std::to_string(members().id()) + " (" +
         test::describe(operations_[number].what) + ")";
}

std::string SimulatedCommunicator::whereabouts() const {
  if (!usable().ok()) return "has failed: " + failure().message();
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
