#include "engine/callbacks.h"

#include <list>
#include <utility>

namespace unisono {
namespace {

// What waits behind the callback that this thread is running; null: it runs none. Only a pointer,
// since destructors of statics may call back when the thread's other locals are gone.
thread_local std::list<std::function<void()>>* waiting_of_thread = nullptr;

}  // namespace

void call_back(std::function<void()> work) noexcept {
  if (waiting_of_thread != nullptr) return waiting_of_thread->push_back(std::move(work));
  std::list<std::function<void()>> waiting;  // which allocates nothing when it is made
  waiting_of_thread = &waiting;
  for (;;) {
    work();
    work = nullptr;
    if (waiting.empty()) break;
    work = std::move(waiting.front());
    waiting.pop_front();
  }
  waiting_of_thread = nullptr;
}

void CompletionCallbacks::add(Callback callback) {
  {
    const std::lock_guard guard(mutex_);
    waiting_.push_back(std::move(callback));
    if (!has_ended_ || std::exchange(is_running_, true)) return;
  }
  call_back([self = shared_from_this()] { self->run(); });
}

void CompletionCallbacks::finish(const Status& outcome) {
  {
    const std::lock_guard guard(mutex_);
    outcome_ = outcome;
    has_ended_ = true;
    if (std::exchange(is_running_, true)) return;
  }
  call_back([self = shared_from_this()] { self->run(); });
}

void CompletionCallbacks::run() {
  for (;;) {
    Callback next;
    {
      const std::lock_guard guard(mutex_);
      if (waiting_.empty()) {
        is_running_ = false;
        return;
      }
      next = std::move(waiting_.front());
      waiting_.erase(waiting_.begin());
    }
    next(outcome_);
  }
}

}  // namespace unisono
