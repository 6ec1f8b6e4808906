#include "comm/cuda_calls.h"

#include <time.h>

#include <algorithm>
#include <set>
#include <string>

#include "comm/communicator_state.h"
#include "comm/device_operation.h"

namespace unisono {
namespace {

// How long a failed call waits for what its streams still do.
constexpr auto kReleaseLimit = std::chrono::milliseconds(300);
constexpr timespec kBetweenLooks{0, 100'000};

// Of Member::addresses: "process:device", as RankDevice::published() gives it.
struct Published {
  std::string process;
  std::string device;
};

Published parse_published(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

}  // namespace

std::unique_ptr<DeviceCalls> DeviceCalls::make(detail::CommunicatorState& communicator) {
  device::RankDevice* const device = communicator.runtime().device();
  if (device == nullptr) return nullptr;
  return std::make_unique<CudaCalls>(communicator, *device);
}

CudaCalls::CudaCalls(detail::CommunicatorState& communicator, device::RankDevice& device)
    : communicator_(communicator), rank_device_(device) {
  find_reach();
}

CudaCalls::~CudaCalls() {
  device::Device* const device = rank_device_.device();
  if (device == nullptr) return;
  const device::DriverScope scope(device->api(), device->context());
  for (Remains& remains : remains_) {
    device->api().EventSynchronize(remains.copied);
    device->give_back(remains.copied);
  }
  forget_members(*device);
  events_.reset();
}

// The memory of members that have died or left, which nothing here can use any more.
void CudaCalls::forget_members(device::Device& device) {
  if (reach_ != Reach::kProcesses || is_stuck_) return;
  for (Rank member = 0; member < size(); ++member) {
    if (communicator_.runtime().is_gone(world_rank(member))) {
      device.memory().forget(world_rank(member));
    }
  }
}

Rank CudaCalls::rank() const { return communicator_.rank(); }
int CudaCalls::size() const { return communicator_.size(); }
Rank CudaCalls::world_rank(Rank rank) const {
  return communicator_.members()[static_cast<std::size_t>(rank)];
}

// From what all members published, so that all find the same.
void CudaCalls::find_reach() {
  const World& world = communicator_.runtime().world();
  std::set<std::string> processes;
  std::set<std::string> devices;
  bool one_host = true;
  for (Rank rank = 0; rank < size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const Member& member = world.members[static_cast<std::size_t>(communicator_.members()[index])];
    const Member& first = world.members[static_cast<std::size_t>(communicator_.members()[0])];
    const Published published = parse_published(find_address(member.addresses, "cuda"));
    if (published.device.empty()) return;
    one_host = one_host && same_host(member, first);
    processes.insert(published.process);
    if (devices.insert(published.device).second) owners_.push_back(rank);
  }
  all_have_devices_ = true;
  if (!one_host || size() > device::kRanksMax) return;
  if (processes.size() == 1) {
    reach_ = Reach::kThreads;
  } else if (processes.size() == static_cast<std::size_t>(size())) {
    reach_ = Reach::kProcesses;
  }
}

bool CudaCalls::concerns(const Call& call) const {
  if (call.options.stream.has_value()) return true;
  return (call.in != nullptr && rank_device_.is_device_memory(call.in)) ||
         (call.out != nullptr && call.out != call.in && rank_device_.is_device_memory(call.out));
}

Status CudaCalls::launch(detail::RequestState& request, const CallShape& shape) {
  UNISONO_TRY(rank_device_.refusal());
  const void* const some = request.call.in != nullptr ? request.call.in : request.call.out;
  UNISONO_ASSIGN(device::Device* const device, rank_device_.device_for(some));
  if (request.device == nullptr) request.device = std::make_unique<DeviceOperation>(*this, request);
  Queue& queue = is_point_to_point(request.call.collective) ? messages_ : collectives_;
  queue.calls.push_back(&request);
  queue.waiting.store(queue.calls.size(), std::memory_order_release);
  auto& operation = static_cast<DeviceOperation&>(*request.device);
  request.operation = &operation;
  request.record = communicator_.device_record(request.call);
  return operation.begin(*device, shape);
}

Status CudaCalls::close_gate(detail::RequestState& request) {
  return static_cast<DeviceOperation&>(*request.device).close_gate();
}

bool CudaCalls::begins_group() const { return communicator_.begins_group(); }

bool CudaCalls::has_turn(const detail::RequestState& request) const {
  const Queue& queue = queue_of(request.call.collective);
  return !queue.calls.empty() && queue.calls.front() == &request;
}

void CudaCalls::pass_turn(const detail::RequestState& request) {
  Queue& queue = is_point_to_point(request.call.collective) ? messages_ : collectives_;
  std::erase(queue.calls, &request);
  queue.waiting.store(queue.calls.size(), std::memory_order_release);
}

Result<device::FlagPage*> CudaCalls::flags(device::Device& device) {
  if (flags_ == nullptr) {
    UNISONO_ASSIGN(flags_, device::FlagPage::make(device, size(), rank()));
  }
  return flags_.get();
}

Result<CUevent> CudaCalls::done_event(device::Device& device) {
  if (done_ == nullptr) {
    const std::string team = communicator_.runtime().world().job_id + "/" +
                             std::to_string(communicator_.id()) + "/" +
                             std::to_string(world_rank(0));
    events_ = device::TeamEvents::join(device.shared_api(), team, size());
    UNISONO_ASSIGN(done_, events_->event_of(rank()));
  }
  return done_;
}

Result<Operation*> CudaCalls::launch_host(detail::RequestState& request, const Call& call,
                                          const CallShape& shape) {
  request.call = call;
  Operation* const device_side = request.operation;
  const Status launched = communicator_.launch_on_host(request, shape);
  Operation* const host_side = request.operation;
  request.operation = device_side;
  UNISONO_TRY(Status(launched));
  return host_side;
}

Result<Operation*> CudaCalls::launch_meeting(detail::RequestState& request, const Call& call,
                                             std::span<const std::byte> mine,
                                             std::span<std::byte> all) {
  Operation* const device_side = request.operation;
  const Status launched = communicator_.launch_meeting(request, call, mine, all);
  Operation* const host_side = request.operation;
  request.operation = device_side;
  UNISONO_TRY(Status(launched));
  return host_side;
}

void CudaCalls::end_host_side(detail::RequestState& request) {
  communicator_.count_plan(request);
  end_meeting(request);
}

void CudaCalls::end_meeting(detail::RequestState& request) {
  if (request.plan != nullptr) --request.plan->in_use;
  request.plan = nullptr;
}

std::size_t CudaCalls::received_bytes(const detail::RequestState& request) const {
  return request.point_to_point.result().bytes;
}

void CudaCalls::note_enqueued(detail::RequestState& request) {
  request.enqueued.store(true, std::memory_order_release);
}

void CudaCalls::leave_behind(CUevent copied, device::Device::Staging input,
                             device::Device::Staging output) {
  remains_.push_back({copied, std::move(input), std::move(output)});
  collect_remains(*rank_device_.device());
}

void CudaCalls::collect_remains(const device::Device& device) {
  std::erase_if(remains_, [&](Remains& remains) {
    if (!is_past(device, remains.copied)) return false;
    rank_device_.device()->give_back(remains.copied);
    return true;
  });
}

bool CudaCalls::is_past(const device::Device& device, CUevent event) {
  if (event == nullptr) return true;
  const Result<bool> over = device.is_over(event);
  return !over || *over;
}

// Peers that still run may write over what ended a wait: it is ended again until it is over.
void CudaCalls::release_streams(const device::Device& device, CUevent over) {
  const TimePoint limit = Clock::now() + kReleaseLimit;
  for (;;) {
    if (flags_ != nullptr) flags_->abort();
    if (is_past(device, over) && is_past(device, done_)) return;
    is_stuck_ = Clock::now() >= limit;
    if (is_stuck_) return;
    nanosleep(&kBetweenLooks, nullptr);
  }
}

}  // namespace unisono
