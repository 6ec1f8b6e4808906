#include "tests/support/refused_allocation.h"

#include "base/sanitizers.h"

namespace unisono::test {

constinit thread_local std::uint64_t allocations = 0;
constinit thread_local std::uint64_t refused_allocation = 0;
constinit thread_local std::uint64_t refused_from = 0;
constinit thread_local std::size_t refused_bytes = 0;
std::atomic<bool> was_refused = false;

}  // namespace unisono::test

#if !UNISONO_ADDRESS_SANITIZER && !UNISONO_THREAD_SANITIZER
using unisono::test::allocations;

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  using namespace unisono::test;
  const std::uint64_t number = ++allocations;
  const bool is_too_long = refused_bytes != 0 && bytes >= refused_bytes;
  const bool is_too_late = refused_from != 0 && number >= refused_from;
  if (number != refused_allocation && !is_too_long && !is_too_late) return __libc_malloc(bytes);
  was_refused = true;
  return nullptr;
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
}
#endif
