#include "csrc/completions.h"

#include <Python.h>
#include <c10/util/Exception.h>
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
// many as there were tasks at once, where the system gives so many.
class Pool {
 public:
  void prepare() {
    const std::lock_guard lock(mutex_);
    if (threads_ == 0) start_thread();
  }

  void add(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= idle_ && !is_stopped_) {
      try {
        start_thread();
      } catch (const std::system_error&) {
        // Those that are there take it.
      }
    }
    // Once stopped, what a task has may be Python's, whose lock nobody gets any more: it is kept.
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }

  // Lets tasks end that have begun, for a while.
  void stop(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    is_stopped_ = true;
    ended_.wait_for(lock, patience, [&] { return idle_ == threads_; });
  }

  pid_t process() const { return process_; }

 private:
  void start_thread() {
    std::thread([this] { run(); }).detach();
    ++threads_;
    ++idle_;  // until it takes its first task
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

void prepare_completions() {
  try {
    pool().prepare();
  } catch (const std::system_error& error) {
    TORCH_CHECK(false, "unisono: no thread for what follows a future: ", error.what());
  }
}

void run_later(std::function<void()> task) { pool().add(std::move(task)); }

void end_completions() { pool().stop(std::chrono::seconds(2)); }

}  // namespace unisono_torch
