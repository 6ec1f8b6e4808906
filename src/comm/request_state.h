// One call from start to collection: what stands behind every Request, pooled by its communicator.
//
// Thread rule: the engine's lock, but for what is atomic; `outcome` by anybody once `done` is seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/operations.h"
#include "comm/plan_cache.h"
#include "compute/compute.h"
#include "engine/engine.h"
#include "unisono/communicator.h"

namespace unisono::detail {

class CommunicatorState;

class RequestState final : public Task, public std::enable_shared_from_this<RequestState> {
 public:
  std::shared_ptr<CommunicatorState> communicator;  ///< set while a Request refers to it
  bool held = false;                                ///< by a blocking call, until it returns
  Call call;
  std::vector<std::size_t> counts[4];  ///< copies of an asynchronous call's spans
  std::optional<compute::Reduction> reduction;
  CallRecord record;
  std::uint64_t sequence = 0;
  Status outcome;  ///< final once done

  NativeOperation native;
  PointToPointOperation point_to_point;
  std::unique_ptr<Execution> execution;
  std::unique_ptr<Operation> device;  ///< of calls on device memory, made when first needed
  bool on_device = false;             ///< this is such a call
  bool only_sends = false;            ///< it hears of no peer by itself
  bool is_numbered = true;  ///< `sequence` is of something that the peers take part in now
  /// Of those: the work is in the caller's stream, or over.
  std::atomic<bool> enqueued = false;
  bool concerns_call_alone = false;  ///< a failure that all ranks found in the call
  PlanCache::Entry* plan = nullptr;

  /// When tend() first saw it, about a millisecond after its start: quick calls read no clock. The
  /// deadline counts from then.
  TimePoint began{};
  TimePoint gone_since{};  ///< since when a member it waits for is seen to have left
  bool probed = false;
  bool reported = false;
  bool warned = false;
  bool timed_out = false;
};

}  // namespace unisono::detail
