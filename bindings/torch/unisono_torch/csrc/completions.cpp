#include "csrc/completions.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace unisono_torch {
namespace {

// Tasks may wait for each other's calls, so that none may have to wait for a thread: there are as
// many as there were tasks at once.
class Pool {
 public:
  void add(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (tasks_.size() > idle_) {
      ++idle_;  // until it takes its first task
      std::thread([this] { run(); }).detach();
    }
    changed_.notify_one();
  }

  pid_t process() const { return process_; }

 private:
  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      --idle_;
      lock.unlock();
      task();
      // What the task has may wait for Python's lock, and who has that may wait for this one.
      task = nullptr;
      lock.lock();
      ++idle_;
    }
  }

  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;  // threads without a task
};

}  // namespace

void run_later(std::function<void()> task) {
  // Leaked until exit: its threads run until then. The child of a fork has none of them.
  static std::mutex mutex;
  static Pool* pool = nullptr;
  Pool* current = nullptr;
  {
    const std::lock_guard lock(mutex);
    if (pool == nullptr || pool->process() != ::getpid()) pool = new Pool;
    current = pool;
  }
  current->add(std::move(task));
}

}  // namespace unisono_torch
