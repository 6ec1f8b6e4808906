// A native call as the engine sees it: it waits for its turn, runs, and ends when another member
// has raised a failure. Thread rule: the engine's lock.
#pragma once

#include <vector>

#include "base/clock.h"
#include "engine/operation.h"
#include "native/native.h"

namespace unisono {

class SharedMemoryBackend;
struct StartedCall;

class SharedMemoryOperation final : public Operation {
 public:
  /// `call` has this operation, and stays as it is until that has ended. `running`: the blocking
  /// path has started it already, since no call was before it.
  void begin(SharedMemoryBackend& backend, const StartedCall& call,
             native::NativeCall* running = nullptr);

  bool advance() override;
  void fail(const Status& cause) override;
  void waiting_for(std::vector<Rank>* ranks) const override;

 private:
  bool run();
  void leave_queue();

  SharedMemoryBackend* backend_ = nullptr;
  const StartedCall* call_ = nullptr;
  native::NativeCall* running_ = nullptr;
  TimePoint raised_at_{};
};

}  // namespace unisono
