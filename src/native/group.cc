#include <sched.h>

#include "native/combine_call.h"
#include "native/exchange_call.h"
#include "native/native.h"
#include "native/shared_cells.h"
#include "native/small_call.h"
#include "native/transfer.h"

namespace unisono::native {
namespace {

// The raised word: code in the low byte, failed rank + 1 above.
std::uint64_t pack(ErrorCode code, Rank failed_rank) {
  return static_cast<std::uint64_t>(code) | static_cast<std::uint64_t>(failed_rank + 1) << 8;
}

// Where ranks share the combining they combine everyone's data each instead of a part, which saves
// a wait and costs more the more ranks there are: of this size always, beyond up to so much of all
// ranks together.
constexpr std::size_t kAlwaysInCells = std::size_t{8} << 10;
constexpr std::size_t kCombinedInCellsMax = std::size_t{64} << 10;

bool fits_cells(const Transfer& transfer, int size) {
  const std::size_t bytes = transfer.largest_input_bytes;
  if (bytes > shm::kCellPayloadBytes) return false;
  return !transfer.shares_combining || bytes <= kAlwaysInCells ||
         bytes * static_cast<std::size_t>(size) <= kCombinedInCellsMax;
}

}  // namespace

struct Group::State {
  State(std::unique_ptr<shm::SegmentGroup> opened, Levels levels)
      : group(std::move(opened)),
        cells(*group),
        progress(*group),
        trials(*group),
        context{*group, cells, progress, trials, levels, {}},
        small(*group, cells, trials),
        combine(context),
        exchange(context) {}

  std::unique_ptr<shm::SegmentGroup> group;
  SharedCells cells;
  Progress progress;
  AccessTrials trials;
  CallContext context;
  SmallCall small;
  CombineCall combine;
  ExchangeCall exchange;
  NativeCall* last = nullptr;
  std::uint64_t starts = 0;
};

Group::Group(std::unique_ptr<shm::SegmentGroup> group, Levels levels)
    : state_(std::make_unique<State>(std::move(group), levels)) {}

Group::~Group() { leave(); }

NativeCall& Group::start(const Arguments& arguments) {
  State& state = *state_;
  if (state.last != nullptr && !state.last->status().ok()) return *state.last;
  ++state.starts;
  state.cells.next();
  const Transfer transfer = transfer_of(arguments.call, state.cells.size(), state.cells.self());
  if (fits_cells(transfer, state.cells.size())) {
    state.small.start(arguments, transfer);
    state.last = &state.small;
    return state.small;
  }
  state.progress.next();
  LargeCall& large = transfer.shares_combining ? static_cast<LargeCall&>(state.combine)
                                               : static_cast<LargeCall&>(state.exchange);
  large.start(arguments, transfer);
  state.last = &large;
  return large;
}

std::uint64_t Group::starts() const { return state_->starts; }

bool Group::can_repeat() const {
  return state_->last == &state_->small && state_->small.status().ok();
}

NativeCall& Group::repeat(const void* input, void* output, const CallRecord& record) {
  state_->cells.next();
  state_->small.repeat(input, output, record);
  return state_->small;
}

void Group::count_last(Collective collective, std::uint64_t times, TrafficReport* report) const {
  state_->last->count(collective, times, report);
}

bool Group::has_left(Rank member) const {
  return state_->group->counters(member).left.value.load(std::memory_order_acquire) != 0;
}

void Group::leave() {
  const int self = state_->group->self();
  state_->group->counters(self).left.value.store(1, std::memory_order_release);
}

bool Group::raise(ErrorCode code, Rank failed_rank) {
  std::uint64_t none = 0;
  const bool is_first = state_->group->header().raised.compare_exchange_strong(
      none, pack(code, failed_rank), std::memory_order_seq_cst, std::memory_order_seq_cst);
  // Before the owner writes its buffers again: pairs with LargeCall::what_was_read_counts. Those
  // are plain stores, which no order of `raised` itself would keep behind it. The thread sanitizer
  // knows no fences, and misses nothing: threads of a process are kept apart by await_readers().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return is_first;
}

void Group::await_readers() const {
  const shm::SegmentGroup& group = *state_->group;
  for (int member = 0; member < group.size(); ++member) {
    if (member == group.self() || !group.in_this_process(member)) continue;
    const auto& reading = group.counters(member).reading.value;
    while (reading.load(std::memory_order_seq_cst) != 0) sched_yield();
  }
}

ErrorCode Group::raised(Rank* failed_rank) const {
  const std::uint64_t word = state_->group->header().raised.load(std::memory_order_acquire);
  if (word == 0) return ErrorCode::kOk;
  // Any member may have written it: a rank that does not exist is nobody, and no cause is none.
  const std::uint64_t named = word >> 8;
  const auto size = static_cast<std::uint64_t>(state_->group->size());
  if (failed_rank != nullptr) *failed_rank = named <= size ? static_cast<Rank>(named) - 1 : -1;
  const auto code = static_cast<ErrorCode>(word & 0xff);
  const bool is_cause = code != ErrorCode::kOk && static_cast<int>(code) < kErrorCodeCount;
  return is_cause ? code : ErrorCode::kProtocol;
}

}  // namespace unisono::native
