// Calls of one communicator on CUDA buffers: how its members reach each other's memory, the order
// in which calls go out, and the doors from a call's stages into the communicator.
//
// Thread rule: as DeviceCalls.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cuda/collectives/captured_calls.h"
#include "cuda/collectives/descriptor.h"
#include "cuda/collectives/device_call.h"
#include "cuda/collectives/device_calls.h"
#include "cuda/device/rank_device.h"
#include "cuda/synchronisation/flag_page.h"
#include "cuda/synchronisation/team_events.h"
#include "engine/operation.h"

namespace unisono {

class FusedCall;
struct Member;

class CudaCalls final : public DeviceCalls {
 public:
  /// How kernels of one member get at the buffers of all; the same on every member.
  enum class Reach : std::uint8_t {
    kStaged,     ///< not at all: some member has no device or is elsewhere, or there are too many
    kThreads,    ///< all members are threads of one process
    kProcesses,  ///< all members are processes of one host, each its own
    kHosts,      ///< on every host as many, at least two, that are kThreads or kProcesses there
  };

  CudaCalls(BackendHost& communicator, device::RankDevice& device);
  ~CudaCalls() override;

  bool concerns(const Call& call) const override;
  Result<Operation*> start(StartedCall& call, const CallShape& shape) override;
  Status close_gate(StartedCall& call) override;
  bool has_unlaunched(Collective like) const override {
    return queue_of(like).waiting.load(std::memory_order_acquire) > 0;
  }
  void replays_wait_for(std::vector<Rank>* ranks) const override;
  void end_replays(bool failed) override;
  Status members_failure() const override;

  BackendHost& communicator() const { return communicator_; }
  Rank rank() const { return communicator_.members().self(); }
  int size() const { return communicator_.members().size(); }
  Rank world_rank(Rank rank) const { return communicator_.members().world_rank(rank); }
  Reach reach() const { return reach_; }
  /// Every member has chosen a device, wherever it is.
  bool all_have_devices() const { return all_have_devices_; }
  /// Of kHosts.
  const HostLayout& layout() const { return layout_; }
  /// Of kHosts: members of this rank's host are processes.
  bool has_local_processes() const { return has_local_processes_; }
  /// Of kHosts: a call has come through, so that pages of flags are registered.
  bool inner_groups_are_connected() const { return inner_groups_are_connected_; }
  void note_inner_groups_connected() { inner_groups_are_connected_ = true; }
  /// Calls that come before that, and must not wait for a stream at a gate behind them.
  void note_connecting(int change) { connecting_ += change; }
  bool is_connecting() const { return connecting_ > 0; }
  /// False where some member's memory is out of the device's reach.
  bool reaches_members(const device::Device& device);
  /// The lowest rank of every device: they launch the kernels.
  std::span<const Rank> owners() const { return owners_; }
  bool is_owner() const;
  /// Of kProcesses, made when first needed.
  Result<device::FlagPage*> flags(device::Device& device);
  /// The same, or null before.
  const device::FlagPage* known_flags() const { return flags_.get(); }
  /// Of kProcesses: `stream`, which the next call is enqueued on, comes behind the latest call's.
  /// CUDA has to see that where it is another one, or it may put streams in another order. False:
  /// not yet; that stream is being captured, and what waits for it would become part of the graph.
  Result<bool> follow_call_before(CUstream stream);
  /// Of kProcesses, made by the first captured call. From then on peers are watched.
  CapturedCalls& captured(device::Device& device);
  /// Of kThreads: what its ranks wait for each other by.
  device::TeamEvents& team() { return *team_; }
  /// The stream of this rank's launches, which puts the calls of the communicator one behind the
  /// other. Its own: what waits in it concerns no other communicator.
  Result<CUstream> work_stream(device::Device& device) { return made_once(&work_stream_, device); }
  /// The same for work that becomes part of a graph, which takes the stream along until the capture
  /// ends.
  Result<CUstream> capture_stream(device::Device& device) {
    return made_once(&capture_stream_, device);
  }
  /// Work that goes there waits for nothing: a call on it begins when it is made.
  Result<CUstream> idle_stream(device::Device& device) { return made_once(&idle_stream_, device); }
  /// For DeviceCall::ready. Of kThreads other ranks may look at it when this one has left.
  Result<CUevent> take_ready_event(device::Device& device);
  void give_back_ready(device::Device& device, CUevent event);

  /// Calls tell the peers about themselves in the order in which they were made. Sends and
  /// receives have an order of their own.
  bool has_turn(const StartedCall& call) const;
  void pass_turn(const StartedCall& call);

  /// Calls of kThreads and kProcesses whose work is in streams. They are over in their order: only
  /// the oldest is looked at.
  void enter_streams(const FusedCall& call, device::Device& device) {
    in_streams_.push_back(&call);
    device.note_in_streams(1);
  }
  bool is_oldest_in_streams(const FusedCall& call) const { return in_streams_.front() == &call; }
  void leave_streams(const FusedCall& call, device::Device& device) {
    device.note_in_streams(-static_cast<int>(std::erase(in_streams_, &call)));
  }

  /// Staged calls that have nothing else to do before their stream has come to them. A stream comes
  /// to its calls in their order: the driver is asked about the oldest of each stream alone.
  std::uint64_t next_ready_number() { return ++ready_numbers_; }
  void await_stream(const DeviceCall& call) { in_line_.emplace(call.stream, call.ready_number); }
  bool is_oldest_of_stream(const DeviceCall& call) const {
    return in_line_.lower_bound({call.stream, 0})->second == call.ready_number;
  }
  void leave_line(const DeviceCall& call) { in_line_.erase({call.stream, call.ready_number}); }

  /// Whether the transports to all peers of a call take messages to and from device buffers of
  /// `bytes` in all.
  Status admits_direct(const Call& call, std::size_t bytes) const;
  /// To the log, once: buffers that are large enough for it.
  void tell_why_not_direct(const device::Device& device, const Status& why);
  /// The work is in the caller's stream: it may go on.
  static void note_enqueued(StartedCall& call);

  /// After the communicator's failure: no kernel that has not begun moves anything, and streams of
  /// this rank stop waiting for other processes, but for kernels of those that are there. Returns
  /// when they are past all calls and all launches are over; or after kReleaseLimit for peers'
  /// kernels, and the same for work of the callers' that holds the streams up, once for all calls.
  void release_streams(device::Device& device);
  /// Sleeps for a moment; false, without, when kReleaseLimit has passed since the first of these,
  /// once for all calls.
  bool may_await_release();

 private:
  /// Calls that have not told the peers about themselves, in the order they were made.
  struct Queue {
    std::deque<const StartedCall*> calls;
    std::atomic<std::size_t> waiting{0};
  };
  bool is_of_devices(const Call& call) const;
  const Member& member(Rank rank) const;
  void find_reach();
  /// `have_devices_alone`: no other rank of their processes uses the members' devices.
  bool find_layout(bool have_devices_alone);
  const Queue& queue_of(Collective collective) const {
    return is_point_to_point(collective) ? messages_ : collectives_;
  }
  Queue& queue_of(Collective collective) {
    return is_point_to_point(collective) ? messages_ : collectives_;
  }
  static Result<CUstream> made_once(CUstream* stream, device::Device& device);
  static Result<bool> is_captured(const device::Device& device, CUstream stream);
  bool launches_are_over(const device::Device& device) const;
  void end_waits();
  void forget_members(device::Device& device);
  void await_replays(device::Device& device);

  BackendHost& communicator_;
  device::RankDevice& rank_device_;
  Reach reach_ = Reach::kStaged;
  bool all_have_devices_ = false;
  std::vector<Rank> owners_;
  std::set<std::string> devices_;  // of all members, by the text of their uuids
  std::optional<bool> reaches_members_;
  HostLayout layout_;
  bool has_local_processes_ = false;
  bool inner_groups_are_connected_ = false;
  int connecting_ = 0;
  std::unique_ptr<device::FlagPage> flags_;
  std::atomic<const device::FlagPage*> readable_flags_ = nullptr;  // the same, for any thread
  std::unique_ptr<CapturedCalls> captured_;
  std::shared_ptr<device::TeamEvents> team_;
  CUstream work_stream_ = nullptr;
  CUstream capture_stream_ = nullptr;
  CUstream idle_stream_ = nullptr;
  CUstream latest_stream_ = nullptr;
  CUevent between_streams_ = nullptr;
  std::vector<CUevent> free_ready_events_;  // of kThreads, the team's
  TimePoint release_limit_{};
  bool gives_up_launchers_ = false;
  bool told_why_not_direct_ = false;
  Queue collectives_, messages_;
  std::deque<const FusedCall*> in_streams_;
  std::uint64_t ready_numbers_ = 0;
  std::set<std::pair<CUstream, std::uint64_t>> in_line_;  // by stream, the oldest first
};

}  // namespace unisono
