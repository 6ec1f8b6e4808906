// Ranks that end no sooner than all do, whether they return or throw: a goodbye may overtake what
// the others are to be told, and who waits for one that has thrown waits for ever.
#pragma once

#include <barrier>

namespace unisono::test {

class LeaveTogether {
 public:
  explicit LeaveTogether(std::barrier<>& all) : all_(all) {}
  ~LeaveTogether() { all_.arrive_and_wait(); }
  LeaveTogether(const LeaveTogether&) = delete;

 private:
  std::barrier<>& all_;
};

}  // namespace unisono::test
