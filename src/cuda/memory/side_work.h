// Calls of the driver that may wait for streams, made by threads of their own: whoever has the
// engine's lock goes on meanwhile, with the call that one of those streams may be waiting for.
//
// Thread rule: any thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "base/result.h"

namespace unisono::cuda {

class SideWork {
 public:
  SideWork();
  ~SideWork() { finish(); }
  SideWork(const SideWork&) = delete;

  /// `work` begins at once, beside whatever else runs. kOutOfResources: there is no thread for it.
  Status run(std::function<void()> work);
  /// The same; where there is no thread it begins later, with go_on() or in finish().
  void run_once_possible(std::function<void()> work);
  /// Begins what found no thread, as far as there are any now.
  void go_on();
  /// Dropped at the end, when no stream waits for this rank any more: a call of the driver's that
  /// waits may hold up others, on whichever thread. What is oldest goes sooner, by a thread of its
  /// own, where there is much.
  void drop_at_end(std::shared_ptr<void> what);
  /// Waits for all of it, and drops what was kept. What never found a thread is done by the caller.
  void finish();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace unisono::cuda
