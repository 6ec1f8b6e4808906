// A device call through page-locked host memory and the host's own collective:
//
//   copied out (device to host) -> the host's operation -> copied in (host to device)
//
// Long calls whose elements are independent go in parts, of which one is copied out and one copied
// in while the host has a third, where all members know that all of them do so. A stream of the
// caller's waits at a gate meanwhile and the caller does not. To its peers the rank is one that
// calls with host memory, so ranks with and without a GPU can be in one communicator. Where all
// have one, a call in parts is another than that of a rank with host memory and no stream.
//
// What the transport moves where it lies (direct_buffers.h) is not copied at all: the host's
// operation has the caller's buffers.
//
// Thread rule: the engine's lock.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/collectives/device_call.h"
#include "cuda/collectives/staged_part.h"
#include "engine/operation.h"

namespace unisono {

class StagedCall {
 public:
  explicit StagedCall(DeviceCall& call) : call_(call) {}

  /// Of a call that nothing has been enqueued for: kUnsupported in a captured stream. Looks at the
  /// stream.
  Status look_ahead();
  /// What the host would refuse it for. Before begin(), in every call.
  Status check();
  /// Errors: kOutOfResources.
  Status begin();
  /// Of a call in a group, whose calls all come after the same work: from here on the caller's
  /// stream waits for the result. Otherwise begin() has done so.
  Status close_gate();
  Result<StageState> advance();
  /// Lets the caller's stream go on, behind the call's copies. The host's operation has ended.
  void fail();
  /// Gives everything back.
  void end();

 private:
  static constexpr std::size_t kPartsAtOnce = 3;
  static constexpr std::size_t kPartBytes = std::size_t{4} << 20;

  std::size_t elements_of_a_part() const;
  void choose_part(std::size_t index, Call* call, CallShape* shape) const;
  Result<bool> is_ready();
  Status start_parts();
  Result<bool> start_part();
  Result<bool> move_host();
  Status check_part(const Call& part, const CallShape& shape);
  Status launch_part();
  Status retire_parts();
  std::size_t result_bytes(const StagedPart& part) const;
  StagedPart& part(std::size_t index) { return parts_[index % kPartsAtOnce]; }

  DeviceCall& call_;
  std::array<StagedPart, kPartsAtOnce> parts_;
  HostBackends::Checked checked_;  // of the part that was checked last
  // Parts that have come so far; those between two numbers are under way.
  std::size_t count_ = 0, started_ = 0, launched_ = 0, done_on_host_ = 0, retired_ = 0;
  bool is_in_line_ = false;      // of the calls that wait for the stream
  bool is_ready_ = false;        // what the caller's stream did before the call is over
  bool host_has_ended_ = false;  // with the part that is to be copied in next
};

}  // namespace unisono
