// One call from start to collection: what stands behind every Request, pooled by its communicator.
//
// Thread rule: the engine's lock, but for what is atomic; `held` by whoever makes the calls of the
// communicator, `outcome` by anybody once `done` is seen.
#pragma once

#include <atomic>
#include <boost/intrusive/list_hook.hpp>
#include <memory>
#include <vector>

#include "backend/started_call.h"
#include "engine/callbacks.h"
#include "engine/engine.h"
#include "unisono/communicator.h"

namespace unisono::detail {

class CommunicatorState;

/// A member that has left is still waited for: since when, and how often that was seen.
struct Absence {
  Rank member = -1;
  TimePoint since{};
  int looks = 0;
};

/// What the watchdog has seen of a call that takes long, and said.
struct WatchNotes {
  /// When it first saw it, about a millisecond after its start: quick calls read no clock.
  TimePoint began{};
  TimePoint deadline = kNever;  ///< counts from then
  Absence absence;
  bool probed = false;
  bool reported = false;
  bool warned = false;
  bool timed_out = false;  ///< and the arbiter was told so, of this operation
  std::uint64_t late_operation = 0;
};

/// Of its pool.
using RunningHook = boost::intrusive::list_base_hook<boost::intrusive::tag<class RequestPool>>;

class RequestState final : public Task,
                           public RunningHook,
                           public StartedCall,
                           public std::enable_shared_from_this<RequestState> {
 public:
  std::shared_ptr<CommunicatorState> communicator;  ///< set while a Request refers to it
  /// Set by a Request, perhaps on another thread than the one that uses the communicator.
  std::atomic<bool> referred = false;
  /// Whoever began it will look at its outcome yet: a blocking call, start() until there is a
  /// Request, or an InnerCall. The pool gives it to nobody else meanwhile.
  bool held = false;
  std::vector<std::size_t> counts[4];  ///< copies of an asynchronous call's spans
  Status outcome;                      ///< final once done

  WatchNotes notes;
  std::shared_ptr<CompletionCallbacks> callbacks;  ///< null: there are none

  /// A Request refers to it from here on, until let_go().
  void refer(std::shared_ptr<CommunicatorState> its) {
    communicator = std::move(its);
    referred.store(true, std::memory_order_relaxed);
  }
  /// Returns the reference that kept the communicator alive. The next user of this pooled request
  /// sees all writes to it.
  std::shared_ptr<CommunicatorState> let_go() {
    std::shared_ptr<CommunicatorState> its = std::move(communicator);
    referred.store(false, std::memory_order_release);
    return its;
  }
};

}  // namespace unisono::detail
