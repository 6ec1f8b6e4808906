#include "cuda/collectives/cuda_calls.h"

#include <time.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/log.h"
#include "cuda/collectives/device_operation.h"
#include "cuda/device/leaked.h"
#include "rendezvous/messages/peer_information.h"

namespace unisono {

namespace {

constexpr timespec kBetweenLooks{0, 100'000};

// Of Member::addresses: "process:device", as RankDevice::published() gives it, and the pid. Empty
// without a device.
struct Published {
  std::string process;
  std::string device;

  auto operator<=>(const Published&) const = default;
};

Published published_by(const World& world, Rank world_rank) {
  const Member& member = world.members[static_cast<std::size_t>(world_rank)];
  const std::string text = find_address(member.addresses, "cuda");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {};
  return {text.substr(0, colon) + " " + std::to_string(member.pid), text.substr(colon + 1)};
}

// No other rank of the world is in the process of one of these and uses its device, or may come to.
bool have_devices_alone(const World& world, std::span<const Rank> world_ranks) {
  std::map<Published, int> ranks_at;
  for (Rank rank = 0; rank < static_cast<Rank>(world.members.size()); ++rank) {
    ++ranks_at[published_by(world, rank)];
  }
  return std::all_of(world_ranks.begin(), world_ranks.end(), [&](Rank rank) {
    const Published here = published_by(world, rank);
    return ranks_at[here] == 1 && !ranks_at.contains({here.process, ""});
  });
}

}  // namespace

std::unique_ptr<DeviceCalls> DeviceCalls::make(BackendHost& communicator,
                                               device::RankDevice* device) {
  if (device == nullptr) return nullptr;
  return std::make_unique<CudaCalls>(communicator, *device);
}

CudaCalls::CudaCalls(BackendHost& communicator, device::RankDevice& device)
    : communicator_(communicator), rank_device_(device) {
  find_reach();
  if (reach_ != Reach::kThreads) return;
  team_ = device::TeamEvents::join(device.device()->shared_api(),
                                   communicator.world().job_id + "/" +
                                       std::to_string(communicator.members().id()) + "/" +
                                       std::to_string(world_rank(0)),
                                   size());
}

CudaCalls::~CudaCalls() {
  device::Device* const device = rank_device_.device();
  if (device == nullptr) return;
  if (captured_ != nullptr) await_replays(*device);
  // What streams may still look at stays for as long as the process.
  if (device->is_stuck()) {
    device::leak_until_exit(std::move(captured_));
    device::leak_until_exit(std::move(flags_));
    device::leak_until_exit(std::move(team_));
    return;
  }
  const cuda::DriverSection section(device->api(), device->context());
  captured_.reset();
  forget_members(*device);
  for (CUstream stream : {work_stream_, capture_stream_, idle_stream_}) {
    if (stream != nullptr) device->api().StreamDestroy(stream);
  }
  device->give_back(between_streams_);
  team_.reset();
}

// The memory of members that have died or left, which nothing here can use any more.
void CudaCalls::forget_members(device::Device& device) {
  if (reach_ != Reach::kProcesses) return;
  for (Rank member = 0; member < size(); ++member) {
    if (communicator_.is_gone(world_rank(member))) {
      device.memory().forget(world_rank(member));
    }
  }
}

bool CudaCalls::is_owner() const {
  return std::find(owners_.begin(), owners_.end(), rank()) != owners_.end();
}

const Member& CudaCalls::member(Rank rank) const {
  return communicator_.world().members[static_cast<std::size_t>(world_rank(rank))];
}

// From what all ranks published, so that all members find the same. A process with a second rank on
// the device is staged: their streams may share a hardware queue, in which the one that waits for
// another process would hold up what that process waits for. So are processes of which one has
// several members: it has each page of flags in one mapping, which the driver registers once.
void CudaCalls::find_reach() {
  const World& world = communicator_.world();
  std::set<std::string> processes;
  bool one_host = true;
  for (Rank rank = 0; rank < size(); ++rank) {
    const Published published = published_by(world, world_rank(rank));
    if (published.device.empty()) return;
    one_host = one_host && same_host(member(rank), member(0));
    processes.insert(published.process);
    if (devices_.insert(published.device).second) owners_.push_back(rank);
  }
  all_have_devices_ = true;
  const bool alone =
      processes.size() > 1 && have_devices_alone(world, communicator_.members().world_ranks());
  if (!one_host) {
    if (find_layout(alone)) reach_ = Reach::kHosts;
  } else if (size() <= device::kRanksMax) {
    const bool are_processes = alone && processes.size() == static_cast<std::size_t>(size());
    reach_ = processes.size() == 1 ? Reach::kThreads
             : are_processes       ? Reach::kProcesses
                                   : Reach::kStaged;
  }
}

// True where every host has as many members as the others, at least two, whose kernels reach each
// other's memory: the threads of one process, or processes of one member each that have their
// devices alone.
bool CudaCalls::find_layout(bool have_devices_alone) {
  const World& world = communicator_.world();
  std::vector<std::vector<Rank>> hosts;
  for (Rank rank = 0; rank < size(); ++rank) {
    const auto host = std::find_if(hosts.begin(), hosts.end(), [&](const auto& ranks) {
      return same_host(member(ranks.front()), member(rank));
    });
    (host == hosts.end() ? hosts.emplace_back() : *host).push_back(rank);
  }
  const std::size_t place_count = hosts.front().size();
  if (place_count < 2 || place_count > static_cast<std::size_t>(device::kRanksMax)) return false;
  HostLayout layout;
  for (const std::vector<Rank>& ranks : hosts) {
    std::set<std::string> processes;
    for (const Rank rank : ranks) {
      processes.insert(published_by(world, world_rank(rank)).process);
    }
    const bool are_processes = have_devices_alone && processes.size() == place_count;
    if (ranks.size() != place_count || (processes.size() != 1 && !are_processes)) return false;
    if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) continue;
    layout.local = ranks;
    has_local_processes_ = processes.size() > 1;
  }
  const auto place = std::find(layout.local.begin(), layout.local.end(), rank());
  for (const std::vector<Rank>& ranks : hosts) {
    layout.across.push_back(ranks[static_cast<std::size_t>(place - layout.local.begin())]);
  }
  layout_ = std::move(layout);
  return true;
}

bool CudaCalls::reaches_members(const device::Device& device) {
  if (!reaches_members_) {
    const std::vector<std::string> others = device.out_of_reach();
    reaches_members_ = std::none_of(others.begin(), others.end(), [&](const std::string& uuid) {
      return devices_.contains(uuid);
    });
  }
  return *reaches_members_;
}

// What is not open yet is opened now, where nobody has the engine's lock: the driver may wait for
// streams meanwhile. start() tells what went wrong.
bool CudaCalls::concerns(const Call& call) const {
  if (!is_of_devices(call)) return false;
  if (rank_device_.device() == nullptr) {
    static_cast<void>(rank_device_.device_for(call.in != nullptr ? call.in : call.out));
  }
  return true;
}

bool CudaCalls::is_of_devices(const Call& call) const {
  if (call.options.stream.has_value()) return true;
  return (call.in != nullptr && rank_device_.is_device_memory(call.in)) ||
         (call.out != nullptr && call.out != call.in && rank_device_.is_device_memory(call.out));
}

Result<Operation*> CudaCalls::start(StartedCall& call, const CallShape& shape) {
  UNISONO_TRY(rank_device_.refusal());
  const void* const some = call.call.in != nullptr ? call.call.in : call.call.out;
  UNISONO_ASSIGN(device::Device* const device, rank_device_.device_for(some));
  if (call.device == nullptr) call.device = std::make_unique<DeviceOperation>(*this, call);
  Queue& queue = queue_of(call.call.collective);
  queue.calls.push_back(&call);
  queue.waiting.store(queue.calls.size(), std::memory_order_release);
  auto& operation = static_cast<DeviceOperation&>(*call.device);
  UNISONO_TRY(operation.begin(*device, shape));
  return &operation;
}

Status CudaCalls::close_gate(StartedCall& call) {
  return static_cast<DeviceOperation&>(*call.device).close_gate();
}

bool CudaCalls::has_turn(const StartedCall& call) const {
  const Queue& queue = queue_of(call.call.collective);
  return !queue.calls.empty() && queue.calls.front() == &call;
}

void CudaCalls::pass_turn(const StartedCall& call) {
  Queue& queue = queue_of(call.call.collective);
  std::erase(queue.calls, &call);
  queue.waiting.store(queue.calls.size(), std::memory_order_release);
}

Result<device::FlagPage*> CudaCalls::flags(device::Device& device) {
  if (flags_ == nullptr) {
    UNISONO_ASSIGN(flags_, device::FlagPage::make(device, size(), rank(), owners_));
    readable_flags_.store(flags_.get(), std::memory_order_release);
  }
  return flags_.get();
}

Result<bool> CudaCalls::follow_call_before(CUstream stream) {
  if (latest_stream_ != stream && !flags_->is_past(flags_->sequence())) {
    const device::Device& device = *rank_device_.device();
    UNISONO_ASSIGN(const bool in_graph, is_captured(device, latest_stream_));
    if (in_graph) return false;
    if (between_streams_ == nullptr) {
      UNISONO_ASSIGN(between_streams_, rank_device_.device()->take_event());
    }
    const cuda::CudaApi& api = device.api();
    const std::string what = "ordering streams on " + device.name();
    UNISONO_TRY(api.check(api.EventRecord(between_streams_, latest_stream_), what));
    UNISONO_TRY(api.check(api.StreamWaitEvent(stream, between_streams_, 0), what));
  }
  latest_stream_ = stream;
  return true;
}

// An event in the default stream would end the captures of others that it waits for.
Result<bool> CudaCalls::is_captured(const device::Device& device, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult looked = device.api().StreamIsCapturing(stream, &status);
  if (looked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  UNISONO_TRY(device.api().check(looked, "looking at the stream on " + device.name()));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CapturedCalls& CudaCalls::captured(device::Device& device) {
  if (captured_ == nullptr) {
    captured_ = std::make_unique<CapturedCalls>(device, size(), rank());
    device.note_captured();
    communicator_.watch_replays();
  }
  return *captured_;
}

void CudaCalls::replays_wait_for(std::vector<Rank>* ranks) const {
  if (captured_ != nullptr) captured_->flags().waiting_for(ranks);
}

// The word for the kernels first: they come behind the waits.
void CudaCalls::end_replays(bool failed) {
  if (failed && flags_ != nullptr) flags_->warn_peers();
  if (flags_ != nullptr) flags_->abort();
  if (captured_ != nullptr) captured_->flags().abort();
}

Status CudaCalls::members_failure() const {
  const device::FlagPage* const flags = readable_flags_.load(std::memory_order_acquire);
  const Rank failed = flags == nullptr ? -1 : flags->failed_peer();
  if (failed < 0) return Status();
  return Status(ErrorCode::kRankFailed,
                "rank " + std::to_string(failed) + " has given the communicator up", failed);
}

// Callers have ended them before they close the communicator, or it has failed and they end soon.
void CudaCalls::await_replays(device::Device& device) {
  end_replays(false);
  const TimePoint limit = Clock::now() + device::kReleaseLimit;
  while (!captured_->flags().is_idle()) {
    if (Clock::now() >= limit) return device.note_stuck();
    nanosleep(&kBetweenLooks, nullptr);
  }
}

Result<CUevent> CudaCalls::take_ready_event(device::Device& device) {
  if (team_ == nullptr) return device.take_event();
  if (free_ready_events_.empty()) return team_->new_event(device);
  CUevent event = free_ready_events_.back();
  free_ready_events_.pop_back();
  return event;
}

void CudaCalls::give_back_ready(device::Device& device, CUevent event) {
  if (team_ == nullptr) return device.give_back(event);
  free_ready_events_.push_back(event);
}

Result<CUstream> CudaCalls::made_once(CUstream* stream, device::Device& device) {
  if (*stream == nullptr) {
    UNISONO_ASSIGN(*stream, device.share()->make_stream());
  }
  return *stream;
}

Status CudaCalls::admits_direct(const Call& call, std::size_t bytes) const {
  const auto admits = [&](Rank peer) { return communicator_.admits_direct(peer, bytes); };
  if (is_point_to_point(call.collective)) return admits(call.peer);
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank()) UNISONO_TRY(admits(peer));
  }
  return Status();
}

void CudaCalls::tell_why_not_direct(const device::Device& device, const Status& why) {
  if (std::exchange(told_why_not_direct_, true)) return;
  log::info("rank " + std::to_string(rank()) + ": what goes to or from " + device.name() +
            " passes through host memory: " + why.message());
}

void CudaCalls::note_enqueued(StartedCall& call) {
  call.enqueued.store(true, std::memory_order_release);
}

bool CudaCalls::launches_are_over(const device::Device& device) const {
  if (!device.health()) return true;  // nothing goes on
  if (team_ == nullptr) return flags_ == nullptr || flags_->is_past(flags_->sequence());
  return std::all_of(owners_.begin(), owners_.end(),
                     [&](Rank owner) { return team_->is_idle(owner); });
}

// Between processes a kernel that moves this rank's bytes may be a peer's, who then tells that it
// is done: where it has not begun, or waits for others, as soon as it hears of the failure.
void CudaCalls::release_streams(device::Device& device) {
  if (flags_ != nullptr) flags_->warn_peers();
  for (;;) {
    end_waits();
    if (launches_are_over(device)) return;
    if (may_await_release()) continue;
    if (flags_ == nullptr || std::exchange(gives_up_launchers_, true)) return device.note_stuck();
    release_limit_ = {};
  }
}

// Of those that launch more may be gone the next time.
void CudaCalls::end_waits() {
  if (team_ != nullptr) team_->abort();
  if (flags_ == nullptr) return;
  flags_->abort();
  for (const Rank launcher : owners_) {
    if (gives_up_launchers_ || communicator_.is_gone(world_rank(launcher))) {
      flags_->give_up(launcher);
    }
  }
}

bool CudaCalls::may_await_release() {
  const TimePoint now = Clock::now();
  if (release_limit_ == TimePoint{}) release_limit_ = now + device::kReleaseLimit;
  if (now >= release_limit_) return false;
  nanosleep(&kBetweenLooks, nullptr);
  return true;
}

}  // namespace unisono
