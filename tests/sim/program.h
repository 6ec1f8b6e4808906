// What a process does by code that blocks, in virtual time: it is left where it waits, and goes on
// once that has come.
//
// Thread rule: one thread.
#pragma once

#include <functional>

#include "tests/sim/fiber.h"
#include "tests/sim/schedule.h"

namespace unisono::sim {

class Program {
 public:
  /// `wake_in`: has look() called after this time.
  Program(const Schedule& schedule, std::function<void(Duration)> wake_in)
      : schedule_(schedule), wake_in_(std::move(wake_in)) {}

  void begin(std::function<void()> what);
  /// By who runs the process.
  void look();
  /// What it waits for does not come any more: waits return at once, until it is over.
  void end();
  bool is_over() const { return !fiber_.is_left(); }

  // By what runs in it:
  /// False where the time has come first, or the program ends. `has_come` is asked until it is
  /// true.
  bool wait_until(const std::function<bool()>& has_come, TimePoint until = kNever);
  /// Has its process run soon: it has begun something.
  void wake() { wake_in_(Duration::zero()); }
  void sleep(Duration time) { wait_until({}, schedule_.now() + time); }
  bool is_ending() const { return is_ending_; }
  /// How often it has waited.
  std::uint64_t waits_made() const { return waits_made_; }

 private:
  bool waits();

  const Schedule& schedule_;
  const std::function<void(Duration)> wake_in_;
  Fiber fiber_;
  const std::function<bool()>* awaited_ = nullptr;
  TimePoint until_ = kNever;
  std::uint64_t waits_made_ = 0;
  bool has_come_ = false;
  bool is_ending_ = false;
};

}  // namespace unisono::sim
