// Barriers of ranks of which one may return early or throw: nobody waits for it for ever.
#pragma once

#include <barrier>

namespace unisono::test {

// Ranks that end no sooner than all do, whether they return or throw: a goodbye may overtake what
// the others are to be told.
class LeaveTogether {
 public:
  explicit LeaveTogether(std::barrier<>& all) : all_(all) {}
  ~LeaveTogether() { all_.arrive_and_wait(); }
  LeaveTogether(const LeaveTogether&) = delete;

 private:
  std::barrier<>& all_;
};

// A rank's place in a barrier of several steps. It is given up with this: the others go on. That
// has to come before the rank's streams end, which may wait for those of the others.
class InStep {
 public:
  explicit InStep(std::barrier<>& all) : all_(all) {}
  ~InStep() { all_.arrive_and_drop(); }
  InStep(const InStep&) = delete;

  void with_all() const { all_.arrive_and_wait(); }

 private:
  std::barrier<>& all_;
};

}  // namespace unisono::test
