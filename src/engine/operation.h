// One running call as the engine sees it: a resumable state machine.
#pragma once

#include <vector>

#include "base/clock.h"
#include "unisono/error.h"

namespace unisono {

/// Thread rule: all of it under the engine's lock.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Moves on as far as is possible without waiting, or for a while: whoever calls it looks at
  /// deadlines and failures in between. True when finished; the outcome is then in status(). Only
  /// that of a native call is called again then, while the job decides on what it has found, and
  /// stays true.
  virtual bool advance() = 0;
  /// The last advance() has ended although more could move: nobody has to wait before the next.
  bool can_go_on() const { return can_go_on_; }
  /// Ends the operation with `cause` (not ok). Afterwards no peer can reach its buffers except
  /// readers that will only see torn data of a failed operation.
  virtual void fail(const Status& cause) = 0;
  /// Appends the members (communicator ranks) this operation waits for right now.
  virtual void waiting_for(std::vector<Rank>* ranks) const = 0;
  /// Ok while running; the outcome once finished.
  const Status& status() const { return status_; }

 protected:
  Status status_;
  bool can_go_on_ = false;
};

}  // namespace unisono
