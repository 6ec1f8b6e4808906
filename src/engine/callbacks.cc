#include "engine/callbacks.h"

#include <list>
#include <utility>

namespace unisono {
namespace {

struct ThreadsCallbacks {
  std::list<std::function<void()>> waiting;  // which allocates nothing when it is made
  bool is_running = false;
};

thread_local ThreadsCallbacks callbacks_of_thread;

}  // namespace

void call_back(std::function<void()> work) {
  ThreadsCallbacks& own = callbacks_of_thread;
  own.waiting.push_back(std::move(work));
  if (std::exchange(own.is_running, true)) return;
  while (!own.waiting.empty()) {
    const std::function<void()> next = std::move(own.waiting.front());
    own.waiting.pop_front();
    next();
  }
  own.is_running = false;
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
