#include "tests/support/refused_allocation.h"

#include <sys/prctl.h>

#include <string_view>

#include "base/sanitizers.h"

namespace unisono::test {

constinit thread_local std::uint64_t allocations = 0;
constinit thread_local std::uint64_t refused_allocation = 0;
constinit thread_local std::uint64_t refused_from = 0;
constinit thread_local std::size_t refused_bytes = 0;
std::atomic<bool> was_refused = false;
std::atomic<Refused> refused_everywhere = Refused::kNone;

}  // namespace unisono::test

#if !UNISONO_ADDRESS_SANITIZER && !UNISONO_THREAD_SANITIZER
using unisono::test::allocations;

namespace {

bool is_of_control() {
  char name[16] = {};
  prctl(PR_GET_NAME, name);
  return std::string_view(name) == "unisono-control" || std::string_view(name) == "unisono-arbiter";
}

bool is_refused_everywhere() {
  using namespace unisono::test;
  const Refused refused = refused_everywhere;
  return refused == Refused::kAll || (refused == Refused::kAllButControl && !is_of_control());
}

}  // namespace

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
  if (number != refused_allocation && !is_too_long && !is_too_late && !is_refused_everywhere()) {
    return __libc_malloc(bytes);
  }
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
