#include "cuda/collectives/hierarchical_call.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "backend/call_selection.h"
#include "base/log.h"
#include "cuda/collectives/cuda_calls.h"

namespace unisono {
namespace {

using device::FallbackReason;

// Slices begin at whole cache lines of the device.
constexpr std::size_t kLineBytes = 128;

// Sums of sums are divided once, by the last to add; each rank scales its own input.
ReduceOp op_on_host(ReduceOp op) {
  if (op.kind == OpKind::kAverage) op = {.kind = OpKind::kSum};
  return op;
}

ReduceOp op_between_hosts(ReduceOp op) {
  if (op.kind == OpKind::kPremultipliedSum) op = {.kind = OpKind::kSum};
  return op;
}

}  // namespace

// Whoever has no number left tells that as its reason to stage the call.
Status HierarchicalCall::check_ids(const HostLayout& layout, const HostGroupIds& ids) {
  if (ids.local != 0 && ids.across != 0) return Status();
  const Rank namer = ids.local == 0 ? layout.local.front() : layout.across.front();
  return Status(ErrorCode::kProtocol,
                "rank " + std::to_string(namer) + " gave the communicator of " +
                    (ids.local == 0 ? "its host" : "its place on all hosts") +
                    " the number 0, which is the world's",
                namer);
}

// The other orders go over all ranks at once, and functions of the host are no kernel's.
bool HierarchicalCall::takes(const Call& call) {
  return call.collective == Collective::kAllReduce && call.op.kind != OpKind::kUser &&
         call.options.order == Order::kAny && !names_algorithm(call.options) &&
         call.count * size_of(call.type) >= kBytesMin;
}

Status HierarchicalCall::begin() {
  count_ = scatters_ = scattered_ = exchanges_ = exchanged_ = gathers_ = gathered_ = 0;
  mine_ = {};
  UNISONO_ASSIGN(const FallbackReason reason, own_fallback());
  mine_.fallback = static_cast<std::uint32_t>(reason);
  connects_ = !call_.calls->inner_groups_are_connected();
  if (connects_) call_.calls->note_connecting(1);
  UNISONO_TRY(call_.gate.make(call_));
  if (!call_.started->in_group) UNISONO_TRY(close_gate());
  state_ = State::kWaitingForTurn;
  return Status();
}

// Why this rank's part cannot be done by kernels.
Result<FallbackReason> HierarchicalCall::own_fallback() const {
  if (call_.input_on_host || call_.output_on_host) return FallbackReason::kHostMemory;
  if (!call_.calls->reaches_members(*call_.device)) return FallbackReason::kNoPeerAccess;
  if (!call_.calls->has_local_processes()) return FallbackReason::kNone;
  if (!call_.device->has_memops()) return FallbackReason::kNoMemops;
  if (call_.device->share()->has_several_ranks()) return FallbackReason::kSharedDevice;
  for (const void* const buffer : {call_.call.in, static_cast<const void*>(call_.call.out)}) {
    UNISONO_ASSIGN(const cuda::BufferTicket ticket,
                   call_.device->memory().ticket_of(buffer, call_.shape.output_bytes));
    if (ticket.kind == cuda::BufferTicket::Kind::kUnshareable) return FallbackReason::kUnshareable;
  }
  return FallbackReason::kNone;
}

Status HierarchicalCall::close_gate() { return call_.gate.close(call_); }

Result<StageState> HierarchicalCall::advance() {
  if (state_ == State::kWaitingForTurn) {
    if (!call_.calls->has_turn(*call_.started)) return StageState::kWaiting;
    UNISONO_TRY(start_metadata_exchange());
  }
  if (state_ == State::kExchangingMetadata) {
    UNISONO_ASSIGN(const bool exchanged, call_.host.advance());
    if (!exchanged) return StageState::kWaiting;
    if (falls_back()) {
      end();
      return StageState::kFallback;
    }
    UNISONO_TRY(start_parts());
  }
  for (bool moved = true; moved;) {
    UNISONO_TRY(start_steps());
    UNISONO_ASSIGN(const bool scattered, end_steps(&scattering_, &scattered_));
    UNISONO_ASSIGN(const bool exchanged, end_steps(&exchanging_, &exchanged_));
    UNISONO_ASSIGN(const bool gathered, end_steps(&gathering_, &gathered_));
    moved = scattered || exchanged || gathered;
  }
  if (is_enqueued()) call_.calls->pass_turn(*call_.started);
  if (gathered_ < count_) return StageState::kWaiting;
  call_.gate.open();
  call_.calls->note_inner_groups_connected();
  state_ = State::kOver;
  return StageState::kOver;
}

Status HierarchicalCall::start_metadata_exchange() {
  BackendHost& communicator = call_.calls->communicator();
  if (communicator.local_group() == nullptr && mine_.fallback == 0) {
    const HostLayout& layout = call_.calls->layout();
    mine_.ids = communicator.offer_groups(layout);
    const Rank self = call_.calls->rank();
    const bool has_none = (layout.local.front() == self && mine_.ids.local == 0) ||
                          (layout.across.front() == self && mine_.ids.across == 0);
    if (has_none) mine_.fallback = static_cast<std::uint32_t>(FallbackReason::kNoNumber);
  }
  told_.assign(static_cast<std::size_t>(call_.calls->size()), {});
  UNISONO_TRY(call_.host.start_metadata_exchange(call_.call, std::as_bytes(std::span(&mine_, 1)),
                                                 std::as_writable_bytes(std::span(told_))));
  state_ = State::kExchangingMetadata;
  return Status();
}

// True where a member has told a reason why its part cannot be done by kernels: all members have
// read the same reasons, and all of them stage the call.
bool HierarchicalCall::falls_back() {
  const auto obstacle =
      std::find_if(told_.begin(), told_.end(), [](const Told& told) { return told.fallback != 0; });
  if (obstacle == told_.end()) return false;
  log::debug("all_reduce goes through host memory: rank " +
             std::to_string(obstacle - told_.begin()) + " has " +
             device::words_for(static_cast<FallbackReason>(obstacle->fallback)));
  state_ = State::kOver;
  return true;
}

Status HierarchicalCall::start_parts() {
  const HostLayout& layout = call_.calls->layout();
  BackendHost& communicator = call_.calls->communicator();
  if (communicator.local_group() == nullptr) {
    const auto told = [&](Rank rank) { return told_[static_cast<std::size_t>(rank)]; };
    const HostGroupIds ids{.local = told(layout.local.front()).ids.local,
                           .across = told(layout.across.front()).ids.across};
    UNISONO_TRY(check_ids(layout, ids));
    communicator.open_groups(layout, ids);
  }
  local_ = communicator.local_group();
  across_ = communicator.across_group();
  const std::size_t part = slice_elements() * layout.local.size();
  count_ = (call_.call.count + part - 1) / part;
  UNISONO_ASSIGN(stream_, call_.calls->work_stream(*call_.device));
  state_ = State::kInParts;
  return call_.device->api().check(call_.device->api().StreamWaitEvent(stream_, call_.ready, 0),
                                   "waiting for the stream of the call on " + call_.device->name());
}

std::size_t HierarchicalCall::slice_elements() const {
  return kSliceBytes / size_of(call_.call.type);
}

// The last part's slices are shorter, those of the last places perhaps empty.
void HierarchicalCall::choose_part(std::size_t part) {
  const std::size_t places = call_.calls->layout().local.size();
  const std::size_t line = std::max<std::size_t>(kLineBytes / size_of(call_.call.type), 1);
  first_ = part * slice_elements() * places;
  std::size_t left = std::min(call_.call.count - first_, slice_elements() * places);
  const std::size_t slice = ((left + places - 1) / places + line - 1) / line * line;
  slices_.assign(places, 0);
  own_first_ = first_;
  for (std::size_t place = 0; place < places; ++place) {
    slices_[place] = std::min(slice, left);
    left -= slices_[place];
    if (static_cast<Rank>(place) < local_->rank()) own_first_ += slices_[place];
  }
}

std::byte* HierarchicalCall::own_slice() const {
  return static_cast<std::byte*>(call_.call.out) + own_first_ * size_of(call_.call.type);
}

// The steps on the host's GPUs come in an order that does not depend on when anything is over: the
// members of the host must make their calls in the same one.
Status HierarchicalCall::start_steps() {
  for (;;) {
    if (scatters_ < count_ && scatters_ < gathers_ + kPartsAhead) {
      UNISONO_TRY(start_scatter());
    } else if (gathers_ < exchanged_) {
      UNISONO_TRY(start_gather());
    } else {
      break;
    }
  }
  while (exchanges_ < scattered_) UNISONO_TRY(start_exchange());
  return Status();
}

Status HierarchicalCall::start_scatter() {
  choose_part(scatters_++);
  const Call& whole = call_.call;
  Call call{.collective = Collective::kReduceScatterV,
            .in = static_cast<const std::byte*>(whole.in) + first_ * size_of(whole.type),
            .out = own_slice(),
            .type = whole.type,
            .op = op_on_host(whole.op),
            .in_counts = slices_};
  call.options = {.timeout = whole.options.timeout, .stream = stream_};
  return start(*local_, call, &scattering_);
}

// Where the slice is, in an idle stream: the work stream may be far ahead of it.
Status HierarchicalCall::start_exchange() {
  choose_part(exchanges_++);
  const Call& whole = call_.call;
  Call call{.collective = Collective::kAllReduce,
            .in = own_slice(),
            .out = own_slice(),
            .count = slices_[static_cast<std::size_t>(local_->rank())],
            .type = whole.type,
            .op = op_between_hosts(whole.op)};
  if (call.count == 0) {
    exchanging_.push_back({});
    return Status();
  }
  UNISONO_ASSIGN(const CUstream idle, call_.calls->idle_stream(*call_.device));
  call.options = {.timeout = whole.options.timeout, .stream = idle};
  return start(*across_, call, &exchanging_);
}

Status HierarchicalCall::start_gather() {
  choose_part(gathers_++);
  const Call& whole = call_.call;
  Call call{.collective = Collective::kAllGatherV,
            .in = own_slice(),
            .out = static_cast<std::byte*>(whole.out) + first_ * size_of(whole.type),
            .type = whole.type,
            .out_counts = slices_};
  call.options = {.timeout = whole.options.timeout, .stream = stream_};
  return start(*local_, call, &gathering_);
}

// All of it is in the work stream: the next call may wait there for the stream that it comes after,
// which may be behind this call's gate.
bool HierarchicalCall::is_enqueued() const {
  if (gathers_ < count_) return false;
  return gathering_.empty() || gathering_.back().call.is_enqueued();
}

Status HierarchicalCall::start(InnerGroup& group, const Call& call, std::deque<Step>* steps) {
  UNISONO_ASSIGN(const InnerCall begun, group.begin(call));
  steps->push_back({&group, begun});
  return Status();
}

// Those at the front that are over. True when there were any.
Result<bool> HierarchicalCall::end_steps(std::deque<Step>* steps, std::size_t* ended) {
  bool some = false;
  for (; !steps->empty() && steps->front().call.is_over(); some = true) {
    const Step step = steps->front();
    step.call.release();
    steps->pop_front();
    ++*ended;
    if (const Status outcome = step.call.outcome(); !outcome) {
      return step.group->outer_status(outcome);
    }
  }
  return some;
}

void HierarchicalCall::waiting_for(std::vector<Rank>* ranks) const {
  std::vector<Rank> inner;
  for (const std::deque<Step>* steps : {&scattering_, &exchanging_, &gathering_}) {
    for (const Step& step : *steps) {
      if (step.call.is_over()) continue;
      inner.clear();
      step.call.waiting_for(&inner);
      for (const Rank rank : inner) {
        const Rank outer = step.group->outer_rank(rank);
        if (std::find(ranks->begin(), ranks->end(), outer) == ranks->end()) {
          ranks->push_back(outer);
        }
      }
    }
  }
}

void HierarchicalCall::fail(const Status& cause) {
  if (state_ == State::kInParts) fail_steps(cause);
  call_.gate.open();
  state_ = State::kOver;
}

void HierarchicalCall::fail_steps(const Status& cause) {
  try {
    local_->fail(cause);
    across_->fail(cause);
  } catch (const std::bad_alloc&) {
    // The groups try again by themselves, and the caller's stream does not wait for that.
  }
}

void HierarchicalCall::end() {
  for (std::deque<Step>* steps : {&scattering_, &exchanging_, &gathering_}) {
    for (const Step& step : *steps) step.call.release();
    steps->clear();
  }
  if (std::exchange(connects_, false)) call_.calls->note_connecting(-1);
}

}  // namespace unisono
