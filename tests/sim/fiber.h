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
  static void run();

  std::unique_ptr<std::byte[]> stack_;
  ucontext_t inside_{}, outside_{};
  std::function<void()> what_;
  bool is_left_ = false;
};

}  // namespace unisono::sim
