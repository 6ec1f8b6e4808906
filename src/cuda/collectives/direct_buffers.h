// The buffers of a call that the transport moves where they lie (GPUDirect): offered while the call
// lasts. The host's operation has them as they are, and nothing is staged.
//
// What has no arithmetic of the host's in it can go that way: messages, and collectives that only
// move blocks, where every peer is reached by a transport that takes device memory. Each rank
// decides for itself; to its peers the messages are the same.
//
// Thread rule: the engine's lock.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>

#include "base/direct_memory.h"
#include "base/result.h"
#include "unisono/communicator.h"

namespace unisono {

struct DeviceCall;

class DirectBuffers {
 public:
  /// Of a call that nothing has been enqueued for. Offers all of its buffers or none.
  ///
  /// A call that only receives may not write into its buffers before the caller's stream has come
  /// to it. If it waited for the stream, its peers would wait for the call, and the stream may
  /// itself be waiting for one of those peers, by what cannot be seen here: a call on another
  /// communicator, a graph, a kernel. So where the stream does not come at once, nothing is offered
  /// and the call is staged. A call that reads input waits for the stream either way.
  Status offer(const DeviceCall& call);
  bool are_offered() const { return offered_[0] != nullptr || offered_[1] != nullptr; }
  /// Of copies that transports and plans made by hand.
  Status failure() const;
  void withdraw();

 private:
  /// Below, a copy costs less than what a network device needs for each message. Not measured on a
  /// GPU.
  static constexpr std::size_t kMessageBytesMin = std::size_t{64} << 10;
  static constexpr auto kIdleStreamLimit = std::chrono::microseconds(50);

  static bool are_worth_it(const DeviceCall& call);
  static std::size_t message_bytes(const DeviceCall& call);
  static Result<bool> has_come_soon(const DeviceCall& call);
  static bool has_host_work(const Call& call, bool in_place);
  Status find(const DeviceCall& call);

  std::array<std::shared_ptr<DirectMemory>, 2> offered_;  // of the input, of the output
};

}  // namespace unisono
