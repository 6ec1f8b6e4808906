#include "tests/fault/outcome_board.h"

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
