#include "comm/communicator_devices.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "comm/communicator_state.h"
#include "comm/split.h"

namespace unisono::detail {

Engine& CommunicatorDevices::engine() const { return around_.runtime().engine(); }

void CommunicatorDevices::open() { calls_ = DeviceCalls::make(*this, around_.runtime().device()); }

CommunicatorDevices::~CommunicatorDevices() {
  groups_.reset();
  if (calls_ == nullptr) return;
  const Engine::Lock lock(engine());
  calls_.reset();
}

// The driver is not asked about the buffers of the last call again.
bool CommunicatorDevices::has_device_memory(const Call& call) const {
  const bool same_buffers = around_.host().shared_memory().has_last_buffers_of(call);
  return !(same_buffers && !call.options.stream) && calls_->concerns(call);
}

Result<Operation*> CommunicatorDevices::start(RequestState& request, const CallShape& shape) {
  if (!exist()) {
    return Status(ErrorCode::kUnsupported, std::string(name_of(request.call.collective)) +
                                               " was given a CUDA stream and rank " +
                                               std::to_string(around_.rank()) +
                                               " has no CUDA device; `unisono info` says why");
  }
  request.backend = calls_.get();
  return calls_->start(request, shape);
}

Status CommunicatorDevices::close_gate(RequestState& request) {
  if (!request.is_on_device()) return Status();
  const Engine::Lock lock(engine());
  const bool is_over = request.done.load(std::memory_order_relaxed);
  return is_over ? Status() : calls_->close_gate(request);
}

void CommunicatorDevices::drain() {
  if (!exist()) return;
  const auto is_drained = [this] {
    const Engine::Lock lock(engine());
    return !around_.usable().ok() || !around_.has_calls_on_devices();
  };
  while (!is_drained()) {
    engine().beat();
    sched_yield();
  }
}

// They lock the engine themselves. Nobody opens any once the device calls are over.
void CommunicatorDevices::close_groups() {
  HostGroups* groups = nullptr;
  {
    const Engine::Lock lock(engine());
    groups = groups_.get();
  }
  if (groups != nullptr) groups->close();
}

void CommunicatorDevices::fail(const Status& cause) {
  if (groups_ != nullptr) groups_->fail(cause);
}

void CommunicatorDevices::end_replays(bool failed) {
  if (!std::exchange(watches_replays_, false)) return;
  engine().unwatch();
  calls_->end_replays(failed);
}

void CommunicatorDevices::add_traffic(TrafficReport* report) const {
  if (groups_ != nullptr) groups_->add_traffic(report);
}

const Members& CommunicatorDevices::members() const { return around_.members(); }
const World& CommunicatorDevices::world() const { return around_.runtime().world(); }
int CommunicatorDevices::ranks_in_process() const { return Runtime::open(); }
HostBackends& CommunicatorDevices::host() { return around_.host(); }

bool CommunicatorDevices::is_gone(Rank world_rank) const {
  return around_.runtime().news().is_gone(world_rank);
}

Status CommunicatorDevices::admits_direct(Rank member, std::size_t bytes) const {
  if (!around_.runtime().config().cuda.direct) {
    return Status(ErrorCode::kUnsupported, "UNISONO_CUDA_DIRECT is off");
  }
  const Rank to = members().world_rank(member);
  return engine().messenger().route(to).admits_direct(to, bytes);
}

void CommunicatorDevices::watch_replays() {
  if (std::exchange(watches_replays_, true)) return;
  engine().watch();
}

HostGroupIds CommunicatorDevices::offer_groups(const HostLayout& layout) {
  HostGroupIds ids;
  Runtime& runtime = around_.runtime();
  if (layout.local.front() == around_.rank()) ids.local = take_communicator_id(runtime);
  if (layout.across.front() == around_.rank()) ids.across = take_communicator_id(runtime);
  return ids;
}

void CommunicatorDevices::open_groups(const HostLayout& layout, const HostGroupIds& ids) {
  groups_ = std::make_unique<HostGroups>(around_, layout, ids);
}

}  // namespace unisono::detail
