// A stack of its own for what is to be left in the middle and gone on with later.
//
// Thread rule: one thread.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace unisono::sim {

class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;

  /// Runs `what` until it ends or is left. While it is left nothing else may begin.
  void begin(std::function<void()> what);
  /// Goes on with what was left.
  void go_on();
  bool is_left() const { return is_left_; }

  /// The one that runs; null outside of all.
  static Fiber* current();
  /// By what runs in it: returns once somebody calls go_on(), perhaps never.
  void leave();

 private:
  /// What a sanitizer knows of a stack.
  struct Known {
    void* fiber = nullptr;
    void* frames = nullptr;  // of what was left there
    const void* stack = nullptr;
    std::size_t bytes = 0;
  };
  static void run();
  void enter();
  void exit(bool is_over);

  std::unique_ptr<std::byte[]> stack_;
  Known known_inside_, known_outside_;
  ucontext_t inside_{}, outside_{};
  std::function<void()> what_;
  bool is_left_ = false;
};

}  // namespace unisono::sim
