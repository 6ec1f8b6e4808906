#include "csrc/completions.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace unisono_torch {
namespace {

// One task may wait for another one's call, as Gloo's two threads allow.
constexpr int kThreads = 2;

class Pool {
 public:
  Pool() {
    for (int i = 0; i < kThreads; ++i) std::thread([this] { run(); }).detach();
  }

  void add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  pid_t process() const { return process_; }

 private:
  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
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
