// What a call on device memory does on the host right now: a part of the call, or the exchange of
// metadata before it. A call of its own, which the engine does not have: the device call advances
// it.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <span>

#include "backend/host_backends.h"

namespace unisono {

class HostPart {
 public:
  explicit HostPart(HostBackends& backends) : backends_(backends) {}

  /// Before anything has begun for `served`: the peers hear of that call.
  void serve(const Call& served);
  /// All members' `mine`. Errors as Backend::start().
  Status start_metadata_exchange(const Call& served, std::span<const std::byte> mine,
                                 std::span<std::byte> all);
  /// `checked` is what HostBackends::check() found of it, or of another part of as many bytes.
  Status start(const Call& part, const HostBackends::Checked& checked);
  bool is_running() const { return operation_ != nullptr; }
  /// Only while is_running(): false until the part is over, then true or its failure.
  Result<bool> advance();
  void fail(const Status& cause);
  /// The part that runs, or null.
  const Operation* operation() const { return operation_; }
  const StartedCall& call() const { return call_; }

 private:
  void note_number();
  void end(bool succeeded);

  HostBackends& backends_;
  StartedCall call_;
  Operation* operation_ = nullptr;
};

}  // namespace unisono
