// Ends a test program that hangs, with words: a hang must fail and not wait for somebody to look.
// A timer and not a thread, so that tests may fork. Thread rule: call from main().
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "base/sanitizers.h"

namespace unisono::test {

/// True when built with the thread sanitizer.
constexpr bool is_thread_sanitized() { return UNISONO_THREAD_SANITIZER == 1; }

/// True when built with a sanitizer: everything is several times slower, and programs do less.
constexpr bool is_sanitized() { return UNISONO_ADDRESS_SANITIZER == 1 || is_thread_sanitized(); }

/// Whether the environment has NAME=1.
inline bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && std::string_view(value) == "1";
}

/// TEST_FULL=1 in the environment: everything instead of a cover.
inline bool is_full_run() { return is_set("TEST_FULL"); }

/// True where suites leave cases out: under a sanitizer, or where TEST_SLOW=1 says that the machine
/// is as slow (an emulated guest), unless TEST_FULL=1.
inline bool is_short_run() { return (is_sanitized() || is_set("TEST_SLOW")) && !is_full_run(); }

/// In short runs the programs of a suite share its cases: of `ways` numbers that follow each other
/// one is this run's own, and true says that `number` is another's. The thread sanitizer, slower by
/// far, has every second of these.
inline bool is_anothers_case(std::size_t number, int ways) {
  const auto share = static_cast<std::size_t>(is_thread_sanitized() ? 2 * ways : ways);
  return is_short_run() && number % share != 0;
}

/// The program is ended with a message when a single test runs longer than it should.
void guard_each_test();

}  // namespace unisono::test
