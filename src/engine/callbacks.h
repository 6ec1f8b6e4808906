// Callbacks of the user's, run where nothing of the library is locked.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"

namespace unisono {

/// Runs `work` on this thread: at once, or after the callback that the thread is running, so that
/// callbacks which cause each other do not nest; one that waits holds those up. Each is destroyed
/// before the next one runs. One that throws, or whose destructor does, ends the process by
/// std::terminate().
void call_back(std::function<void()> work) noexcept;

/// The callbacks of one call, one at a time and in the order in which they were given. Any thread.
class CompletionCallbacks : public std::enable_shared_from_this<CompletionCallbacks> {
 public:
  using Callback = std::function<void(const Status&)>;

  /// Has `callback` run when the call ends. If it has ended, `callback` runs here, or on the thread
  /// that is running the callbacks before it.
  void add(Callback callback);
  /// The call has ended: runs what was given so far.
  void finish(const Status& outcome);

 private:
  void run();

  std::mutex mutex_;
  std::vector<Callback> waiting_;
  Status outcome_;
  bool has_ended_ = false;
  bool is_running_ = false;
};

}  // namespace unisono
