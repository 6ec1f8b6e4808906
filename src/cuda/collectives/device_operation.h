// One call on device buffers as the engine sees it: fused where the members share device memory and
// the buffers allow it, hierarchical where those of each host do, staged through host memory
// otherwise.
//
// Thread rule: the engine's lock.
#pragma once

#include <vector>

#include "cuda/collectives/device_call.h"
#include "cuda/collectives/fused_call.h"
#include "cuda/collectives/hierarchical_call.h"
#include "cuda/collectives/staged_call.h"
#include "engine/operation.h"

namespace unisono {

class DeviceOperation final : public Operation {
 public:
  DeviceOperation(CudaCalls& calls, StartedCall& call);
  ~DeviceOperation() override { end(); }

  /// Errors as Backend::start().
  Status begin(device::Device& device, const CallShape& shape);

  /// See DeviceCalls::close_gate(); of a call that is not over.
  Status close_gate();

  bool advance() override;
  void fail(const Status& cause) override;
  void waiting_for(std::vector<Rank>* ranks) const override;

 private:
  enum class Stage : std::uint8_t { kNone, kFused, kHierarchical, kStaged };

  Stage first_stage() const;
  Status begin_stage();
  Status record_ready();
  Status read_stream();
  Status check_own_stream();
  Status read_capture();
  Status check_buffers();
  Status fall_back();
  Result<StageState> advance_stage();
  Status named(const Status& failure) const;
  void stop(const Status& cause);
  void end();

  DeviceCall call_;
  FusedCall fused_;
  HierarchicalCall hierarchical_;
  StagedCall staged_;
  Stage stage_ = Stage::kNone;
};

}  // namespace unisono
