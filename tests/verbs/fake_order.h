// Tells the thread sanitizer what order between threads a real device gives, and hides the order
// that the fake's own lock would add: a rank that looks at memory before a completion announced it
// is then reported, although it has called a function of the fake in between. Any thread.
#pragma once

#include "base/sanitizers.h"

extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

namespace unisono::verbs::fake {

/// Only with the thread sanitizer do the functions above exist.
inline constexpr bool kOrderIsChecked = UNISONO_THREAD_SANITIZER == 1;

inline void hide_begin() {
  if constexpr (kOrderIsChecked) {
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
}
inline void hide_end() {
  if constexpr (kOrderIsChecked) {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  }
}
/// Everything before a release of `what` happens before everything after a later acquire of it.
inline void order_acquire([[maybe_unused]] void* what) {
  if constexpr (kOrderIsChecked) __tsan_acquire(what);
}
inline void order_release([[maybe_unused]] void* what) {
  if constexpr (kOrderIsChecked) __tsan_release(what);
}

/// What this thread does meanwhile is neither checked nor orders anything.
class Hidden {
 public:
  explicit Hidden(bool on) : on_(on) {
    if (on_) hide_begin();
  }
  ~Hidden() {
    if (on_) hide_end();
  }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

 private:
  bool on_;
};

/// The reverse, inside a Hidden.
class Shown {
 public:
  explicit Shown(bool on) : on_(on) {
    if (on_) hide_end();
  }
  ~Shown() {
    if (on_) hide_begin();
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

 private:
  bool on_;
};

}  // namespace unisono::verbs::fake
