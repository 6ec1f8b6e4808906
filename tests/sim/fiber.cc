#include "tests/sim/fiber.h"

#include <utility>

#include "base/sanitizers.h"

#if UNISONO_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif
#if UNISONO_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace unisono::sim {
namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10;
Fiber* running = nullptr;

}  // namespace

Fiber* Fiber::current() { return running; }

Fiber::~Fiber() {
#if UNISONO_THREAD_SANITIZER
  if (known_inside_.fiber != nullptr) __tsan_destroy_fiber(known_inside_.fiber);
#endif
}

void Fiber::begin(std::function<void()> what) {
  if (stack_ == nullptr) stack_ = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  what_ = std::move(what);
  known_inside_.stack = stack_.get();
  known_inside_.bytes = kStackBytes;
#if UNISONO_THREAD_SANITIZER
  if (known_inside_.fiber != nullptr) __tsan_destroy_fiber(known_inside_.fiber);
  known_inside_.fiber = __tsan_create_fiber(0);
#endif
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;  // exit() goes on outside
  makecontext(&inside_, &Fiber::run, 0);
  go_on();
}

void Fiber::go_on() {
  running = this;
  is_left_ = false;
  enter();
  running = nullptr;
}

void Fiber::leave() {
  is_left_ = true;
  exit(false);
}

// Address and thread sanitizer hear of every change of the stack. What is between that and the
// change itself would count for the wrong one.
__attribute__((no_sanitize("thread"))) void Fiber::enter() {
#if UNISONO_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&known_outside_.frames, known_inside_.stack, known_inside_.bytes);
#endif
#if UNISONO_THREAD_SANITIZER
  known_outside_.fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(known_inside_.fiber, 0);
#endif
  swapcontext(&outside_, &inside_);
#if UNISONO_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(known_outside_.frames, nullptr, nullptr);
#endif
}

__attribute__((no_sanitize("thread"))) void Fiber::exit(bool is_over) {
#if UNISONO_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(is_over ? nullptr : &known_inside_.frames, known_outside_.stack,
                                 known_outside_.bytes);
#endif
#if UNISONO_THREAD_SANITIZER
  __tsan_switch_to_fiber(known_outside_.fiber, 0);
#endif
  if (is_over) setcontext(&outside_);
  swapcontext(&inside_, &outside_);
#if UNISONO_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(known_inside_.frames, &known_outside_.stack,
                                  &known_outside_.bytes);
#endif
}

void Fiber::run() {
  Fiber& self = *running;
#if UNISONO_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &self.known_outside_.stack, &self.known_outside_.bytes);
#endif
  self.what_();
  self.exit(true);
}

}  // namespace unisono::sim
