#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace unisono {

void assertion_failed(const char* condition, const char* message, const char* file, int line) {
  std::fprintf(stderr, "unisono: assertion failed: %s (%s) at %s:%d\n", condition, message, file,
               line);
  std::abort();
}

}  // namespace unisono
