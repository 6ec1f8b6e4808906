// UNISONO_ASSERT: always on, for broken invariants of this library only. Nothing that a wire, a
// file or a user's argument can bring about may be asserted.
#pragma once

#include "unisono/export.h"

namespace unisono {
[[noreturn]] UNISONO_API void assertion_failed(const char* condition, const char* message,
                                               const char* file, int line);
}  // namespace unisono

#define UNISONO_ASSERT(condition, message)                                  \
  do {                                                                      \
    if (__builtin_expect(!(condition), 0))                                  \
      ::unisono::assertion_failed(#condition, message, __FILE__, __LINE__); \
  } while (false)
