// Callbacks of the user's, run where nothing of the library is locked.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"

namespace unisono {

/// What is to run later, once. It is in one list at most, which so needs no memory.
class Work {
 public:
  virtual ~Work() = default;
  virtual void run() = 0;

 private:
  friend class WorkList;
  std::shared_ptr<Work> next_;
};

/// First in, first out. Allocates nothing.
class WorkList {
 public:
  bool empty() const { return first_ == nullptr; }
  void push(std::shared_ptr<Work> work);
  std::shared_ptr<Work> pop();

 private:
  std::shared_ptr<Work> first_;
  Work* last_ = nullptr;
};

/// Runs `work` on this thread: at once, or after what the thread is running, so that callbacks
/// which cause each other do not nest; one that waits holds those up. Each is let go before the
/// next one runs. One that throws, or whose destructor does, ends the process by std::terminate().
void call_back(std::shared_ptr<Work> work) noexcept;

/// The callbacks of one call, one at a time and in the order in which they were given. Any thread.
class CompletionCallbacks final : public Work,
                                  public std::enable_shared_from_this<CompletionCallbacks> {
 public:
  using Callback = std::function<void(const Status&)>;

  /// Has `callback` run when the call ends. If it has ended, `callback` runs here, or on the thread
  /// that is running the callbacks before it.
  void add(Callback callback);
  /// The call has ended, which is said once. Whoever says it has what was given so far run by
  /// call_back(). Allocates nothing that it needs.
  void end(const Status& outcome);
  void run() override;

 private:
  std::mutex mutex_;
  std::vector<Callback> waiting_;
  Status outcome_;
  bool has_ended_ = false;
  bool is_running_ = false;
};

}  // namespace unisono
