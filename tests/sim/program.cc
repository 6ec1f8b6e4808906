#include "tests/sim/program.h"

#include <utility>

namespace unisono::sim {

void Program::begin(std::function<void()> what) { fiber_.begin(std::move(what)); }

void Program::look() {
  if (fiber_.is_left() && !waits()) fiber_.go_on();
}

void Program::end() {
  is_ending_ = true;
  look();
}

bool Program::waits() {
  if (is_ending_) return false;
  has_come_ = *awaited_ && (*awaited_)();
  return !has_come_ && schedule_.now() < until_;
}

bool Program::wait_until(const std::function<bool()>& has_come, TimePoint until) {
  awaited_ = &has_come;
  until_ = until;
  if (waits()) {
    ++waits_made_;
    if (until != kNever) wake_in_(until - schedule_.now());
    fiber_.leave();  // until look() finds that it does not wait any more
  }
  return !is_ending_ && has_come_;
}

}  // namespace unisono::sim
