// The border between C++ and C: no exception passes it, and what one said is kept for
// unisono_last_error() and its companions.
#pragma once

#include <utility>

#include "unisono/error.h"
#include "unisono/unisono.h"

namespace unisono::c {

/// Keeps a failure as the last one of this thread, and returns its code. Where the memory for its
/// words is lacking, the code and the rank remain.
unisono_code fail(const Status& status) noexcept;
/// The same for the exception that is being handled.
unisono_code fail_by_exception() noexcept;

/// Forgets the last failure of this thread.
void forget_failure() noexcept;

/// The outcome of `body`, which returns nothing and may throw.
template <typename Body>
unisono_code guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return UNISONO_OK;
  } catch (...) {
    return fail_by_exception();
  }
}

/// The Status that `ask` returns, kept where it is a failure.
template <typename Ask>
unisono_code outcome_of(Ask&& ask) noexcept {
  try {
    const Status status = std::forward<Ask>(ask)();
    return status ? UNISONO_OK : fail(status);
  } catch (...) {
    return fail_by_exception();
  }
}

/// Throws kInvalidArgument.
[[noreturn]] void refuse(const char* operation, const char* why);

/// What `pointer` points at; where it is null, refuses with `why`.
template <typename T>
T& required(T* pointer, const char* operation, const char* why) {
  if (pointer == nullptr) refuse(operation, why);
  return *pointer;
}

}  // namespace unisono::c
