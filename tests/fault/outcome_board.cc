#include "tests/fault/outcome_board.h"

#include <sched.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/clock.h"

namespace unisono::test {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

void Outcome::set(const Error& error) {
  at_ns = now_ns();
  code = error.code();
  rank = error.rank();
  std::strncpy(message, error.what(), sizeof message - 1);
  written = true;
}

void* map_shared(std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return at;
}

void unmap_shared(void* at, std::size_t bytes) { munmap(at, bytes); }

bool eventually(const std::function<bool()>& condition) {
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    sched_yield();
  }
  return true;
}

Outcome outcome_of(const std::function<void()>& call) {
  Outcome outcome;
  try {
    call();
  } catch (const Error& error) {
    outcome.set(error);
  }
  return outcome;
}

}  // namespace unisono::test
