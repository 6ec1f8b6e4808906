#include "cuda/collectives/fused_call.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/grace_periods.h"
#include "base/log.h"
#include "cuda/collectives/cuda_calls.h"
#include "cuda/driver/driver_section.h"

namespace unisono {
namespace {

using device::Descriptor;
using device::DescriptorCounts;
using device::FallbackReason;

constexpr std::chrono::milliseconds kBetweenLooksAtDevice{10};

// Displacements that were not given are end to end. Arrays that the call does not use may have any
// length.
void copy_counts(const BlockCounts& blocks, std::uint64_t* counts, std::uint64_t* displacements) {
  std::size_t next = 0;
  const auto ranks = std::min<std::size_t>(blocks.counts.size(), device::kRanksMax);
  for (std::size_t i = 0; i < ranks; ++i) {
    counts[i] = blocks.counts[i];
    displacements[i] = blocks.begin(i, next);
    next += counts[i];
  }
}

}  // namespace

bool FusedCall::is_of_processes() const {
  return call_.calls->reach() == CudaCalls::Reach::kProcesses;
}

Status FusedCall::begin() {
  refused_ = false;
  suspicion_ = {};
  suspected_at_ = {};
  next_look_ = Clock::now() + kBetweenLooksAtDevice;
  has_counts_ = facts_of(call_.call.collective).is_uneven;
  stride_ = sizeof(Descriptor) + (has_counts_ ? sizeof(DescriptorCounts) : 0);
  UNISONO_TRY(describe());
  if (is_of_processes()) call_.device->share()->stream_order().line_up(this);
  state_ = State::kWaitingForTurn;
  return Status();
}

Status FusedCall::describe() {
  cuda::DeviceMemory& memory = call_.device->memory();
  const Call& call = call_.call;
  mine_ = {};
  if (call_.shape.input_bytes > 0) {
    UNISONO_ASSIGN(mine_.input, memory.ticket_of(call.in, call_.shape.input_bytes));
  }
  if (call_.has_one_buffer()) {
    mine_.output = mine_.input;
  } else if (call_.shape.output_bytes > 0) {
    UNISONO_ASSIGN(mine_.output, memory.ticket_of(call.out, call_.shape.output_bytes));
  }
  const bool processes = is_of_processes();
  const auto is = [&](cuda::BufferTicket::Kind kind) {
    return mine_.input.kind == kind || mine_.output.kind == kind;
  };
  FallbackReason fallback = FallbackReason::kNone;
  if (call_.capture == DeviceCall::kInvalidCapture) {
    fallback = FallbackReason::kInvalidCapture;
  } else if (is(cuda::BufferTicket::Kind::kHost)) {
    fallback = FallbackReason::kHostMemory;
  } else if (processes && is(cuda::BufferTicket::Kind::kUnshareable)) {
    fallback = FallbackReason::kUnshareable;
  } else if (call.op.kind == OpKind::kUser && reduces(call.collective)) {
    fallback = FallbackReason::kUserOperator;
  } else if (call.options.order == Order::kExact && reduces(call.collective)) {
    fallback = FallbackReason::kExactOrder;
  } else if (!call_.calls->reaches_members(*call_.device)) {
    fallback = FallbackReason::kNoPeerAccess;
  } else if (!call_.device->has_memops()) {
    fallback = FallbackReason::kNoMemops;
  } else if (processes && call_.capture != 0 && !call_.device->has_wide_memops()) {
    fallback = FallbackReason::kNoWideMemops;
  } else if (processes && !may_wait_beside_others()) {
    fallback = FallbackReason::kSharedDevice;
  }
  mine_.fallback = static_cast<std::uint32_t>(fallback);
  mine_.capture = call_.capture;
  mine_.ready = reinterpret_cast<std::uint64_t>(call_.ready);
  mine_.input_bytes = call_.shape.input_bytes;
  mine_.output_bytes = call_.shape.output_bytes;
  mine_.count = call.count;
  mine_.scalar = call.op.scalar;
  if (processes && fallback != FallbackReason::kNoMemops) {
    UNISONO_ASSIGN(device::FlagPage * flags, call_.calls->flags(*call_.device));
    mine_.flags = flags->pages().ticket();
  }
  if (has_counts_) {
    my_counts_ = {};
    copy_counts(input_counts(call), my_counts_.input_counts, my_counts_.input_displacements);
    copy_counts(output_counts(call), my_counts_.output_counts, my_counts_.output_displacements);
  }
  return Status();
}

// Ranks of several jobs may make their calls in different orders on different processes: so many
// streams of this one wait at a time as leave hardware queues for what others wait for. Those that
// replays wait in are not known.
bool FusedCall::may_wait_beside_others() {
  device::DeviceShare& share = *call_.device->share();
  is_among_waiting_streams_ = true;
  const bool leaves_queues = share.waiting_streams().enter(call_.stream);
  if ((leaves_queues && call_.capture == 0) || !share.has_several_ranks()) return true;
  leave_waiting_streams();
  return false;
}

void FusedCall::leave_waiting_streams() {
  if (!std::exchange(is_among_waiting_streams_, false)) return;
  call_.device->share()->waiting_streams().leave(call_.stream);
}

Result<StageState> FusedCall::advance() {
  if (state_ == State::kWaitingForTurn) {
    if (!call_.calls->has_turn(*call_.started) || !call_.device->has_room_in_streams()) {
      return StageState::kWaiting;
    }
    UNISONO_TRY(start_metadata_exchange());
  }
  if (state_ == State::kExchangingMetadata) {
    UNISONO_ASSIGN(const bool exchanged, call_.host.advance());
    if (!exchanged) return StageState::kWaiting;
    UNISONO_ASSIGN(const StageState read, read_metadata());
    if (read != StageState::kWaiting) return read;
  }
  if (state_ == State::kInLine) {
    if (!call_.device->share()->stream_order().is_first(this)) return StageState::kWaiting;
    state_ = State::kConnecting;
  }
  if (state_ == State::kConnecting) {
    UNISONO_ASSIGN(const bool connected, connect());
    if (!connected) return StageState::kWaiting;
  }
  if (state_ == State::kAgreeing) {
    UNISONO_ASSIGN(const bool agreed, call_.host.advance());
    if (!agreed) return StageState::kWaiting;
    UNISONO_TRY(join_launches());
  }
  if (!suspicion_.ok()) return await_decision(suspicion_);
  // What a captured stream holds runs when its graph is launched.
  if (call_.capture == 0) {
    if (!call_.calls->is_oldest_in_streams(*this) || !is_over()) {
      UNISONO_TRY(look_after_device());
      return StageState::kWaiting;
    }
    if (const Status suspicion = call_.calls->members_failure(); !suspicion) {
      return await_decision(suspicion);
    }
  }
  state_ = State::kOver;
  return StageState::kOver;
}

// Words that a broken device does not write any more would be waited for until the deadline.
Status FusedCall::look_after_device() {
  const TimePoint now = Clock::now();
  if (now < next_look_) return Status();
  next_look_ = now + kBetweenLooksAtDevice;
  const cuda::DriverSection section(call_.device->api(), call_.device->context());
  UNISONO_TRY(section.status());
  return call_.device->health();
}

bool FusedCall::is_over() const {
  if (is_of_processes()) {
    const device::FlagPage* const flags = call_.calls->known_flags();
    return flags == nullptr || flags->is_past(sequence_);
  }
  return std::all_of(ends_.begin(), ends_.end(), device::TeamEvents::is_over);
}

// It ends this call by fail(), and says more.
Result<StageState> FusedCall::await_decision(const Status& suspicion) {
  const TimePoint now = Clock::now();
  if (suspected_at_ == TimePoint{}) suspected_at_ = now;
  if (now - suspected_at_ < grace::kCause) return StageState::kWaiting;
  return suspicion;
}

Status FusedCall::start_metadata_exchange() {
  // Now: the captured calls before this one have taken their flags.
  if (call_.capture != 0 && mine_.fallback == 0 && is_of_processes()) {
    const cuda::DriverSection section(call_.device->api(), call_.device->context());
    UNISONO_TRY(section.status());
    UNISONO_ASSIGN(mine_.graph_flags, call_.calls->captured(*call_.device).flags().offer());
  }
  const auto ranks = static_cast<std::size_t>(call_.calls->size());
  sent_.resize(stride_);
  received_.resize(stride_ * ranks);
  std::memcpy(sent_.data(), &mine_, sizeof mine_);
  if (has_counts_) std::memcpy(sent_.data() + sizeof mine_, &my_counts_, sizeof my_counts_);
  UNISONO_TRY(call_.host.start_metadata_exchange(call_.call, sent_, received_));
  state_ = State::kExchangingMetadata;
  return Status();
}

// What any rank's buffers make impossible; all ranks see the same.
FallbackReason FusedCall::fallback(Rank* who) const {
  for (Rank rank = 0; rank < call_.calls->size(); ++rank) {
    if (part(rank).fallback == 0) continue;
    *who = rank;
    return static_cast<FallbackReason>(part(rank).fallback);
  }
  return FallbackReason::kNone;
}

Result<StageState> FusedCall::read_metadata() {
  if (const Status captures = check_captures(); !captures) {
    refused_ = true;
    return captures;
  }
  UNISONO_TRY(check_told(call_.call, told()));
  Rank who = -1;
  if (const FallbackReason reason = fallback(&who); reason != FallbackReason::kNone) {
    if (call_.capture != 0) {
      refused_ = true;
      return refuse_capture(reason, who);
    }
    log::debug(std::string(name_of(call_.call.collective)) + " goes through host memory: rank " +
               std::to_string(who) + " has " + device::words_for(reason));
    state_ = State::kOver;
    return StageState::kFallback;
  }
  // Whatever fails from here on, something may be in streams, those of others too.
  if (is_of_processes()) {
    state_ = State::kInLine;
  } else {
    state_ = State::kAgreeing;
    UNISONO_TRY(launch_for_threads());
    UNISONO_TRY(start_agreement());
  }
  return StageState::kWaiting;
}

// Graphs hold a call whole or not at all: one graph that of threads, which are all in one capture,
// and one on each rank that of processes.
Status FusedCall::check_captures() const {
  for (Rank rank = 0; rank < call_.calls->size(); ++rank) {
    const auto reason = static_cast<FallbackReason>(part(rank).fallback);
    if (reason == FallbackReason::kInvalidCapture) return refuse_capture(reason, rank);
  }
  const bool processes = is_of_processes();
  const std::uint64_t first = part(0).capture;
  for (Rank rank = 1; rank < call_.calls->size(); ++rank) {
    const std::uint64_t theirs = part(rank).capture;
    if (processes ? (theirs != 0) == (first != 0) : theirs == first) continue;
    return Status(ErrorCode::kUnsupported,
                  "rank " + std::to_string(rank) + " calls " +
                      std::string(name_of(call_.call.collective)) +
                      (theirs == 0 ? " outside of a capture" : " in a capture") + " and rank 0 " +
                      (first == 0    ? "outside of one"
                       : theirs == 0 ? "in one"
                                     : "in another one") +
                      (processes ? ": capture the call on all ranks or on none"
                                 : ": capture the streams of all ranks into one graph"),
                  rank);
  }
  return Status();
}

Status FusedCall::refuse_capture(FallbackReason reason, Rank who) const {
  return Status(ErrorCode::kUnsupported,
                "a CUDA graph cannot hold " + std::string(name_of(call_.call.collective)) +
                    " here: rank " + std::to_string(who) + " has " + device::words_for(reason) +
                    "; call it outside of the capture",
                who);
}

// False: not yet.
Result<bool> FusedCall::reach(const cuda::BufferTicket& ticket, Rank rank, std::size_t bytes,
                              std::byte** here) {
  if (bytes == 0) return true;
  const bool is_here = !is_of_processes() || rank == call_.calls->rank();
  UNISONO_ASSIGN(
      void* const opened,
      call_.device->memory().open(ticket, {rank, call_.calls->world_rank(rank), is_here}, bytes));
  *here = static_cast<std::byte*>(opened);
  return opened != nullptr;
}

// Everybody's part as this rank's device reaches it. False while memory of a peer's, which has
// taken the place of what it has freed, cannot be mapped yet.
Result<bool> FusedCall::reach_parts(std::vector<device::RankPart>* parts) {
  parts->assign(static_cast<std::size_t>(call_.calls->size()), {});
  const auto ranks = static_cast<std::size_t>(call_.calls->size());
  for (Rank rank = 0; rank < call_.calls->size(); ++rank) {
    device::RankPart& reached = (*parts)[static_cast<std::size_t>(rank)];
    const Descriptor& theirs = part(rank);
    UNISONO_ASSIGN(const bool has_input,
                   reach(theirs.input, rank, theirs.input_bytes, &reached.input));
    UNISONO_ASSIGN(const bool has_output,
                   reach(theirs.output, rank, theirs.output_bytes, &reached.output));
    if (!has_input || !has_output) return false;
    if (!has_counts_) continue;
    const DescriptorCounts& arrays = counts(rank);
    reached.input_counts = {arrays.input_counts, ranks};
    reached.input_displacements = {arrays.input_displacements, ranks};
    reached.output_counts = {arrays.output_counts, ranks};
    reached.output_displacements = {arrays.output_displacements, ranks};
  }
  return true;
}

// What this rank launches. It is made before anything is enqueued: were memory lacking in between,
// the host would wait for a word that no stream writes. One rank of each device launches: processes
// that share one would take turns on it, and each turn costs a change of contexts. The others'
// streams wait and tell.
std::vector<cuda::DeviceWork> FusedCall::make_pieces(std::span<const device::RankPart> parts,
                                                     const std::uint32_t* abort) const {
  if (!call_.calls->is_owner()) return {};
  const Call& call = call_.call;
  const device::CollectiveParts collective{.collective = call.collective,
                                           .root = call.root,
                                           .count = call.count,
                                           .element_bytes = size_of(call.type),
                                           .ranks = parts,
                                           .owners = call_.calls->owners()};
  std::vector<cuda::DeviceWork> pieces = device::pieces_of(collective, call_.calls->rank());
  for (cuda::DeviceWork& work : pieces) {
    work.abort = abort;
    for (Rank rank = 0; rank < call_.calls->size(); ++rank) {
      work.scalars[rank] = part(rank).scalar;
    }
  }
  return pieces;
}

Status FusedCall::launch(CUstream stream, std::span<const cuda::DeviceWork> pieces) const {
  const Call& call = call_.call;
  const cuda::WorkKind kind{.type = call.type,
                            .reduces = reduces(call.collective),
                            .op = call.op.kind,
                            .order = call.options.order};
  const cuda::Runs runs = call_.capture == 0 ? cuda::Runs::kOnce : cuda::Runs::kInGraph;
  for (const cuda::DeviceWork& work : pieces) {
    UNISONO_TRY(call_.device->kernels().launch(stream, work, kind, runs));
  }
  return Status();
}

// The owners' part: behind everybody's ready event, in a stream of the library's own, which also
// puts the calls of a communicator one behind the other.
Status FusedCall::launch_for_threads() {
  if (!call_.calls->is_owner()) return Status();
  const device::Device& device = *call_.device;
  const cuda::CudaApi& api = device.api();
  const cuda::DriverSection section(api, device.context());
  UNISONO_TRY(section.status());
  UNISONO_ASSIGN(const CUstream stream, call_.capture == 0
                                            ? call_.calls->work_stream(*call_.device)
                                            : call_.calls->capture_stream(*call_.device));
  std::vector<device::RankPart> parts;
  UNISONO_TRY(reach_parts(&parts).status());
  for (Rank rank = 0; rank < call_.calls->size(); ++rank) {
    const auto ready = reinterpret_cast<CUevent>(part(rank).ready);
    UNISONO_TRY(api.check(api.StreamWaitEvent(stream, ready, 0),
                          "waiting for rank " + std::to_string(rank) + " on " + device.name()));
  }
  // A graph outlives the communicator and its word.
  const std::uint32_t* abort = nullptr;
  if (call_.capture == 0) {
    UNISONO_ASSIGN(abort, call_.calls->team().abort_word(device));
  }
  const std::vector<cuda::DeviceWork> pieces = make_pieces(parts, abort);
  const std::string what = "recording the end of a launch on " + device.name();
  device::TeamEvents& team = call_.calls->team();
  const bool is_captured = call_.capture != 0;
  const device::TeamEvents::Launch launching(team, call_.calls->rank());
  // What the driver may refuse comes first: others are to know of a launch that they wait for.
  UNISONO_ASSIGN(my_end_, team.next_end(call_.calls->rank(), device, is_captured));
  const Status launched = launch(stream, pieces);
  // The end is recorded even where a later one of several launches has failed.
  UNISONO_TRY(team.record_end(my_end_, stream, is_captured, what));
  return launched;
}

// The second exchange: whose launches to wait for.
Status FusedCall::start_agreement() {
  sent_.resize(sizeof my_end_);
  received_.resize(sizeof my_end_ * static_cast<std::size_t>(call_.calls->size()));
  std::memcpy(sent_.data(), &my_end_, sizeof my_end_);
  UNISONO_TRY(call_.host.start_metadata_exchange(call_.call, sent_, received_));
  state_ = State::kAgreeing;
  return Status();
}

Status FusedCall::join_launches() {
  const cuda::CudaApi& api = call_.device->api();
  const cuda::DriverSection section(api, call_.device->context());
  UNISONO_TRY(section.status());
  ends_.resize(call_.calls->owners().size());
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const Rank owner = call_.calls->owners()[i];
    std::memcpy(&ends_[i], received_.data() + static_cast<std::size_t>(owner) * sizeof ends_[i],
                sizeof ends_[i]);
    UNISONO_TRY(
        api.check(api.StreamWaitEvent(call_.stream, ends_[i].event, 0),
                  "waiting for rank " + std::to_string(owner) + " on " + call_.device->name()));
  }
  finish_in_stream();
  return Status();
}

// Fails, too, where a peer has died since the exchange: not for this rank to say whose fault it is.
Result<bool> FusedCall::connect() {
  const cuda::DriverSection section(call_.device->api(), call_.device->context());
  UNISONO_TRY(section.status());
  std::vector<device::RankPart> parts;
  Result<bool> connected = connect_flags();
  if (connected && *connected && call_.calls->is_owner()) connected = reach_parts(&parts);
  if (connected && *connected && call_.capture == 0) {
    connected = call_.calls->follow_call_before(call_.stream);
  }
  if (connected && !*connected) return false;
  state_ = State::kInStreams;
  if (connected) {
    UNISONO_TRY(enqueue_for_processes(parts));
  } else {
    suspicion_ = connected.error();
  }
  return true;
}

Result<bool> FusedCall::connect_flags() {
  UNISONO_ASSIGN(device::FlagPage * flags, call_.calls->flags(*call_.device));
  if (!flags->pages().is_connected()) {
    UNISONO_ASSIGN(const bool connected, flags->pages().connect(offers(&Descriptor::flags)));
    if (!connected) return false;
  }
  if (call_.capture == 0) return true;
  device::GraphFlags& of_graphs = call_.calls->captured(*call_.device).flags();
  if (of_graphs.is_connected()) return true;
  return of_graphs.connect(offers(&Descriptor::graph_flags));
}

// Errors are those of connect().
Status FusedCall::enqueue_for_processes(std::span<const device::RankPart> parts) {
  UNISONO_ASSIGN(device::FlagPage * flags, call_.calls->flags(*call_.device));
  UNISONO_TRY(call_.capture != 0 ? capture_call(*flags, parts) : enqueue_call(*flags, parts));
  finish_in_stream();
  return Status();
}

std::span<const device::PageTicket> FusedCall::offers(device::PageTicket Descriptor::*which) {
  offers_.clear();
  for (Rank rank = 0; rank < call_.calls->size(); ++rank) offers_.push_back(part(rank).*which);
  return offers_;
}

Status FusedCall::enqueue_call(device::FlagPage& flags, std::span<const device::RankPart> parts) {
  const std::vector<cuda::DeviceWork> pieces = make_pieces(parts, flags.abort_word());
  const Status enqueued = flags.enqueue(call_.stream, [&] { return launch(call_.stream, pieces); });
  sequence_ = flags.sequence();
  return enqueued;
}

// The same in a graph, with flags that serve every replay.
Status FusedCall::capture_call(const device::FlagPage& flags,
                               std::span<const device::RankPart> parts) {
  CapturedCalls& captured = call_.calls->captured(*call_.device);
  if (call_.calls->is_owner()) {
    for (Rank rank = 0; rank < call_.calls->size(); ++rank) {
      if (part(rank).input_bytes > 0) UNISONO_TRY(captured.keep(part(rank).input));
      if (part(rank).output_bytes > 0) UNISONO_TRY(captured.keep(part(rank).output));
    }
  }
  const std::vector<cuda::DeviceWork> pieces = make_pieces(parts, flags.abort_word());
  const std::uint64_t number = captured.flags().take();
  UNISONO_TRY(captured.begin(call_.stream, call_.capture));
  UNISONO_TRY(captured.flags().enqueue_ready(call_.stream, number));
  UNISONO_TRY(launch(call_.stream, pieces));
  UNISONO_TRY(captured.flags().enqueue_done(call_.stream, number));
  return captured.end(call_.stream, call_.capture);
}

void FusedCall::finish_in_stream() {
  if (call_.capture == 0) call_.calls->enter_streams(*this, *call_.device);
  state_ = State::kInStreams;
  call_.device->share()->stream_order().leave(this);
  call_.calls->pass_turn(*call_.started);
  CudaCalls::note_enqueued(*call_.started);
}

void FusedCall::waiting_for(std::vector<Rank>* ranks) const {
  // It waits for another call of this rank, in another communicator.
  if (state_ == State::kInLine) ranks->push_back(call_.calls->rank());
  if (state_ != State::kInStreams || sequence_ == 0) return;
  if (const device::FlagPage* const flags = call_.calls->known_flags()) {
    flags->waiting_for(sequence_, ranks);
  }
}

// Members of one process may have launched what this rank has not heard of.
void FusedCall::fail() {
  const bool may_be_launched =
      !refused_ && (state_ == State::kExchangingMetadata || state_ == State::kInLine ||
                    state_ == State::kConnecting || state_ == State::kAgreeing);
  if (may_be_launched || state_ == State::kInStreams) {
    call_.calls->release_streams(*call_.device);
  }
  state_ = State::kOver;
}

void FusedCall::end() {
  ends_.clear();
  my_end_ = {};
  sequence_ = 0;
  state_ = State::kOver;
  leave_waiting_streams();
  call_.device->share()->stream_order().leave(this);
  call_.calls->leave_streams(*this, *call_.device);
}

}  // namespace unisono
