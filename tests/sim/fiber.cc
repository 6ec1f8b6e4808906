#include "tests/sim/fiber.h"

#include <utility>

namespace unisono::sim {
namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10;
Fiber* running = nullptr;

}  // namespace

Fiber* Fiber::current() { return running; }

void Fiber::begin(std::function<void()> what) {
  if (stack_ == nullptr) stack_ = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  what_ = std::move(what);
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = &outside_;
  makecontext(&inside_, &Fiber::run, 0);
  go_on();
}

void Fiber::go_on() {
  running = this;
  is_left_ = false;
  swapcontext(&outside_, &inside_);
  running = nullptr;
}

void Fiber::leave() {
  is_left_ = true;
  swapcontext(&inside_, &outside_);
}

void Fiber::run() { running->what_(); }

}  // namespace unisono::sim
