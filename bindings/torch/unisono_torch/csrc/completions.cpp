#include "csrc/completions.h"

#include <Python.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace unisono_torch {
namespace {

// Tasks may wait for each other's calls, so that none may have to wait for a thread: there are as
// many as there were tasks at once.
class Pool {
 public:
  void add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      // What a task has may be Python's, whose lock nobody gets any more: it is kept.
      if (is_stopped_ || tasks_.size() < idle_ || start_thread() || threads_ > 0) {
        tasks_.push_back(std::move(task));
        changed_.notify_one();
        return;
      }
    }
    // There is no thread and will be none.
    task();
  }

  // Lets tasks end that have begun, for a while.
  void stop(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    is_stopped_ = true;
    ended_.wait_for(lock, patience, [&] { return idle_ == threads_; });
  }

  pid_t process() const { return process_; }

 private:
  bool start_thread() {
    try {
      std::thread([this] { run(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++threads_;
    ++idle_;  // until it takes its first task
    return true;
  }

  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !tasks_.empty() && !is_stopped_; });
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      --idle_;
      lock.unlock();
      task();
      // What the task has may wait for Python's lock, and who has that may wait for this one.
      task = nullptr;
      lock.lock();
      ++idle_;
      ended_.notify_all();
    }
  }

  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable changed_, ended_;
  std::deque<std::function<void()>> tasks_;
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;  // threads without a task
  bool is_stopped_ = false;
};

// Leaked until exit: its threads run until then. The child of a fork has none of them.
Pool& pool() {
  static std::mutex mutex;
  static Pool* pool = nullptr;
  const std::lock_guard lock(mutex);
  if (pool == nullptr || pool->process() != ::getpid()) pool = new Pool;
  return *pool;
}

}  // namespace

void run_later(std::function<void()> task) { pool().add(std::move(task)); }

void end_completions() { pool().stop(std::chrono::seconds(2)); }

}  // namespace unisono_torch
