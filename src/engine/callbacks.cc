#include "engine/callbacks.h"

#include <new>
#include <utility>

namespace unisono {
namespace {

// What waits behind the callback that this thread is running; null: it runs none. Only a pointer,
// since destructors of statics may call back when the thread's other locals are gone.
thread_local WorkList* waiting_of_thread = nullptr;

}  // namespace

void WorkList::push(std::shared_ptr<Work> work) {
  std::shared_ptr<Work>& place = last_ == nullptr ? first_ : last_->next_;
  last_ = work.get();
  place = std::move(work);
}

std::shared_ptr<Work> WorkList::pop() {
  std::shared_ptr<Work> work = std::move(first_);
  first_ = std::move(work->next_);
  if (first_ == nullptr) last_ = nullptr;
  return work;
}

void call_back(std::shared_ptr<Work> work) noexcept {
  if (waiting_of_thread != nullptr) return waiting_of_thread->push(std::move(work));
  WorkList waiting;
  waiting_of_thread = &waiting;
  for (;;) {
    work->run();
    work = nullptr;
    if (waiting.empty()) break;
    work = waiting.pop();
  }
  waiting_of_thread = nullptr;
}

void CompletionCallbacks::add(Callback callback) {
  {
    const std::lock_guard guard(mutex_);
    waiting_.push_back(std::move(callback));
    if (!has_ended_ || std::exchange(is_running_, true)) return;
  }
  call_back(shared_from_this());
}

void CompletionCallbacks::end(const Status& outcome) {
  const std::lock_guard guard(mutex_);
  try {
    outcome_ = outcome;
  } catch (const std::bad_alloc&) {
    outcome_ = Status(outcome.code(), "", outcome.rank());
  }
  has_ended_ = true;
  is_running_ = true;
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
