#include "cuda/memory/side_work.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/signals_blocked.h"

namespace unisono::cuda {
namespace {

// Each may hold a descriptor for every member of a communicator.
constexpr std::size_t kKeptMax = 16;

}  // namespace

struct SideWork::State {
  std::mutex mutex;
  std::condition_variable over;
  int running = 0;
  std::deque<std::shared_ptr<void>> kept;
  std::deque<std::function<void()>> without_thread;

  void run_oldest() {
    std::unique_lock lock(mutex);
    if (without_thread.empty()) return;
    const std::function<void()> oldest = std::move(without_thread.front());
    without_thread.pop_front();
    lock.unlock();
    oldest();
  }

  void end_one() {
    const std::lock_guard lock(mutex);
    --running;
    over.notify_all();
  }
};

SideWork::SideWork() : state_(std::make_shared<State>()) {}

void SideWork::finish() {
  std::unique_lock lock(state_->mutex);
  state_->over.wait(lock, [this] { return state_->running == 0; });
  const auto kept = std::move(state_->kept);
  const auto left = std::exchange(state_->without_thread, {});
  lock.unlock();
  for (const auto& work : left) work();
}

Status SideWork::run(std::function<void()> work) {
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->running;
  }
  try {
    const SignalsBlocked blocked;
    std::thread([state = state_, work = std::move(work)]() mutable {
      std::exchange(work, nullptr)();  // and with it what it holds, before this is over
      state->end_one();
    }).detach();
    return Status();
  } catch (const std::system_error& error) {
    state_->end_one();
    return Status(ErrorCode::kOutOfResources,
                  std::string("no thread for a call of the CUDA driver: ") + error.what());
  }
}

void SideWork::run_once_possible(std::function<void()> work) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->without_thread.push_back(std::move(work));
  }
  go_on();
}

// Each thread takes what is oldest when it has begun, and drops what that holds.
void SideWork::go_on() {
  std::unique_lock lock(state_->mutex);
  std::size_t left = state_->without_thread.size();
  lock.unlock();
  for (; left > 0; --left) {
    if (const Status begun = run([state = state_] { state->run_oldest(); }); !begun) {
      return log::debug(begun.message());
    }
  }
}

void SideWork::drop_at_end(std::shared_ptr<void> what) {
  std::shared_ptr<void> oldest;
  {
    const std::lock_guard lock(state_->mutex);
    state_->kept.push_back(std::move(what));
    if (state_->kept.size() <= kKeptMax) return;
    oldest = std::move(state_->kept.front());
    state_->kept.pop_front();
  }
  run_once_possible([held = std::move(oldest)]() mutable { held.reset(); });
}

}  // namespace unisono::cuda
