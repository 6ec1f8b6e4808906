// Ends a test program that hangs, with words: a hang must fail and not wait for somebody to look.
// A timer and not a thread, so that tests may fork. Thread rule: call from main().
#pragma once

namespace unisono::test {

/// The program is ended with a message when a single test runs longer than this.
void guard_each_test(int seconds);

/// True when built with a sanitizer: everything is several times slower, and programs do less.
constexpr bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return true;
#else
  return false;
#endif
#else
  return false;
#endif
}

/// TEST_FULL=1 in the environment: everything instead of a cover.
bool is_full_run();

}  // namespace unisono::test
