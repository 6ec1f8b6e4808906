#include "native/large_call.h"

#include <cstring>

namespace unisono::native {

namespace {

bool shares_process(const shm::SegmentGroup& group) {
  for (int member = 0; member < group.size(); ++member) {
    if (member != group.self() && group.in_this_process(member)) return true;
  }
  return false;
}

bool is_private(shm::MemoryPath path) {
  return path == shm::MemoryPath::kNone || path == shm::MemoryPath::kSingleCopy;
}

}  // namespace

LargeCall::LargeCall(CallContext& context)
    : context_(context),
      inputs_(static_cast<std::size_t>(context.cells.size())),
      has_threads_(shares_process(context.group)) {}

// The flag is stored before raised is looked at, and an owner raises before it looks at the flag:
// one of both sees the other, for which all four must be sequentially consistent.
LargeCall::Reading::Reading(const LargeCall& call) {
  if (!call.has_threads_ || !call.reads_in_place_) return;
  shm::SegmentGroup& group = call.context_.group;
  flag_ = &group.counters(group.self()).reading.value;
  flag_->store(1, std::memory_order_seq_cst);
  allowed_ = group.header().raised.load(std::memory_order_seq_cst) == 0;
}

LargeCall::Reading::~Reading() {
  // Release: pairs with the owner's load, after which it may free what was read.
  if (flag_ != nullptr) flag_->store(0, std::memory_order_release);
}

void LargeCall::choose_access(const Arguments& arguments) {
  AccessTrials& trials = context_.trials;
  path_matters_ = is_trial_ = compares_window_ = false;
  access_ = arguments.access;
  if (access_ != AccessPath::kAutomatic) return;
  access_ = AccessPath::kMapped;
  const AccessTrials::Class number =
      AccessTrials::class_of(arguments.call.collective, transfer_.largest_input_bytes);
  if (number == AccessTrials::kNone) return;
  access_ = trials.next(number, context_.cells.sequence());
  is_trial_ = trials.is_trial();
  // The other paths read in place what they can, too.
  compares_window_ = AccessTrials::tries_window(number) &&
                     (access_ == AccessPath::kMapped || access_ == AccessPath::kWindow);
  if (is_trial_) began_ = Clock::now();
}

void LargeCall::start(const Arguments& arguments, const Transfer& transfer) {
  transfer_ = transfer;
  choose_access(arguments);
  record_ = arguments.record;
  reduction_ = arguments.reduction;
  element_bytes_ = size_of(arguments.call.type);
  takes_turns_ = context_.group.takes_turns() && transfer.gives_and_takes_all(size());
  accepted_ = transfer.sources.first;
  offer_ = {};
  turn_bytes_ = 0;
  can_go_on_ = told_finished_ = false;
  reads_in_place_ = false;
  stage_ = Stage::kEnter;
  Status planned = plan(&offer_);
  if (!planned && compares_window_ && access_ == AccessPath::kWindow) {
    // There is no memory for a window that may not be needed.
    access_ = AccessPath::kMapped;
    transfer_ = transfer;
    offer_ = {};
    planned = plan(&offer_);
  }
  if (!planned) end(planned);
}

bool LargeCall::enter() {
  if (!prepare_cell()) return false;
  shm::CellLine& line = context_.cells.own();
  line.record = record_;
  std::memcpy(line.payload, &offer_, sizeof offer_);
  context_.cells.publish();
  stage_ = Stage::kMove;
  return true;
}

bool LargeCall::accept_offers() {
  const int before = accepted_;
  for (; accepted_ < transfer_.sources.last; ++accepted_) {
    if (is_self(accepted_)) continue;
    if (!context_.cells.arrived(accepted_)) break;
    const shm::CellLine& line = context_.cells.line(accepted_);
    if (!(line.record == record_)) {
      end(context_.cells.mismatch(accepted_));
      break;
    }
    Offer offer;
    std::memcpy(&offer, line.payload, sizeof offer);
    if (shm::is_in_place(offer.input.path) || shm::is_in_place(offer.result.path))
      reads_in_place_ = true;
    if (Status accepted = accept(accepted_, offer); !accepted) {
      end(accepted);
      break;
    }
  }
  if (accepted_ == size() && transfer_.sources.first == 0) context_.cells.saw_everyone();
  return accepted_ != before;
}

// Reading keeps threads of this process from what a failed owner may have got back; owners in other
// processes do not wait for it, so what was read counts only if nothing was raised until it was.
bool LargeCall::what_was_read_counts() const {
  if (!reads_in_place_) return true;
  std::atomic_thread_fence(std::memory_order_acquire);  // the reads come first; see Group::raise
  return context_.group.header().raised.load(std::memory_order_relaxed) == 0;
}

// True when something moved: until nothing can, or a turn is over.
bool LargeCall::move() {
  bool moved = false;
  while (!ended() && !can_go_on_) {
    const Reading reading(*this);
    if (!reading.allowed() || !step()) break;
    moved = true;
    can_go_on_ = turn_bytes_ >= kTurnBytes;
  }
  if (can_go_on_) turn_bytes_ = 0;
  return moved;
}

bool LargeCall::advance() {
  can_go_on_ = false;
  if (stage_ == Stage::kEnter && !enter()) {
    // Nothing is done yet: readers of an earlier call are late.
    if (is_trial_) began_ = Clock::now();
    return false;
  }
  while (stage_ == Stage::kMove) {
    bool moved = !accepted_all() && accept_offers();
    if (ended()) break;
    moved = move() || moved;
    if (ended()) break;
    if (!told_finished_ && accepted_all() && took_all()) {
      if (!what_was_read_counts()) return false;
      context_.progress.finished();
      told_finished_ = true;
    }
    if (told_finished_ && gave_all()) {
      stage_ = Stage::kLeave;
      if (is_trial_) end_trial();
    } else if (!moved || can_go_on_) {
      return false;
    }
  }
  if (stage_ == Stage::kLeave) {
    if (!released() || !context_.cells.saw_previous(transfer_.sources, &status_)) return false;
    let_go();
    stage_ = Stage::kDone;
  }
  return true;
}

void LargeCall::end_trial() {
  context_.trials.note(transfer_.largest_input_bytes, began_, Clock::now(), path_matters_);
  is_trial_ = false;
}

std::size_t LargeCall::scratch_share() const {
  return kScratchBytes / static_cast<std::size_t>(size()) / shm::kLineBytes * shm::kLineBytes;
}

std::byte* LargeCall::scratch_of(int member) {
  if (context_.scratch.empty()) return nullptr;
  return context_.scratch.data() + static_cast<std::size_t>(member) * scratch_share();
}

const std::byte* LargeCall::look(const shm::MemoryView& view, int member,
                                 const std::byte* in_window, std::size_t offset, std::size_t bytes,
                                 std::byte* scratch) {
  if (view.path == shm::MemoryPath::kNone) return in_window;
  if (view.path != shm::MemoryPath::kSingleCopy) return view.base + offset;
  if (Status got = context_.group.copy(member, view, offset, {scratch, bytes}); !got) {
    end(got);
  }
  return scratch;
}

shm::MemoryHandle LargeCall::offered(const void* buffer, std::size_t bytes) {
  const std::span memory(static_cast<const std::byte*>(buffer), bytes);
  shm::MemoryHandle handle = context_.group.handle_of(memory, false);
  if (access_ == AccessPath::kWindow) {
    if (handle.path != shm::MemoryPath::kNone) path_matters_ = true;
    return {shm::MemoryPath::kNone, bytes};
  }
  if (handle.path == shm::MemoryPath::kNone && access_ == AccessPath::kSingleCopy &&
      shm::may_be_read(memory)) {
    handle = context_.group.handle_of(memory, true);
  }
  handle.bytes = bytes;
  if (is_private(handle.path) || compares_window_) path_matters_ = true;
  return handle;
}

Result<shm::MemoryView> LargeCall::open(int member, const shm::MemoryHandle& handle) {
  const bool is_windowed = access_ == AccessPath::kWindow;  // which its owner judges
  if (!is_windowed && (is_private(handle.path) || compares_window_) && handle.bytes > 0) {
    path_matters_ = true;
  }
  return context_.group.open(member, handle);
}

void LargeCall::let_go() {
  for (shm::MemoryView& view : inputs_) view.mapping.reset();
}

void LargeCall::end(const Status& cause) {
  status_ = cause;
  let_go();
  stage_ = Stage::kDone;
}

void LargeCall::fail(const Status& cause) {
  if (!ended()) end(cause);
}

bool LargeCall::is_waited_for(int member) const {
  if (is_self(member)) return false;
  if (stage_ == Stage::kEnter) return waits_for_slot(member);
  if (stage_ == Stage::kLeave && context_.cells.misses_in_previous(member)) return true;
  if (accepted_all()) return waits_for(member);
  return member >= accepted_ && transfer_.sources.has(member) && !context_.cells.arrived(member);
}

void LargeCall::waiting_for(std::vector<Rank>* ranks) const {
  if (ended()) return;
  for (int member = 0; member < size(); ++member) {
    if (is_waited_for(member)) ranks->push_back(member);
  }
}

}  // namespace unisono::native
