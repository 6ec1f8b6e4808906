// A native call as the engine sees it: it waits for its turn, runs, and ends when another member
// has raised a failure. Thread rule: the engine's lock.
#pragma once

#include <vector>

#include "base/clock.h"
#include "engine/operation.h"
#include "native/native.h"

namespace unisono {

class SharedMemoryBackend;

class SharedMemoryOperation final : public Operation {
 public:
  /// `counted`: in the communicator's traffic.
  void begin(SharedMemoryBackend& backend, const native::Arguments& arguments, bool counted);
  /// The blocking path has started it already, since no call was before it.
  void adopt(SharedMemoryBackend& backend, Collective collective, native::NativeCall& running);

  bool advance() override;
  void fail(const Status& cause) override;
  void waiting_for(std::vector<Rank>* ranks) const override;

 private:
  void line_up(SharedMemoryBackend& backend, native::NativeCall* running, bool counted);
  void leave_queue();

  SharedMemoryBackend* backend_ = nullptr;
  native::Arguments arguments_;
  native::NativeCall* running_ = nullptr;
  bool counted_ = true;
  TimePoint raised_at_{};
};

}  // namespace unisono
