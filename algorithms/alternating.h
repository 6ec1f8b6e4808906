// Where a value that is sent while its successor is computed may live: a receive must never wait
// for the send of the same round, or two ranks that exchange values wait for each other for ever.
// Lives on the stack of an algorithm; one thread.
#pragma once

#include <optional>

#include "plan/plan_builder.h"

namespace unisono::algorithms {

/// A value that is replaced `updates` times, each time in other memory, and ends in `result`.
class AlternatingValue {
 public:
  AlternatingValue(plan::PlanBuilder& builder, const plan::ChunkRange& start,
                   const plan::ChunkRange& result, int updates)
      : builder_(builder), current_(start), result_(result), updates_left_(updates) {
    if (updates == 0) {
      builder.copy(result, start);
      current_ = result;
    } else if (updates % 2 == 1 && builder.same_memory(start, result)) {
      // The first update goes to `result`, so the start value has to leave it.
      builder.copy(scratch(), start);
      current_ = scratch();
    }
  }

  const plan::ChunkRange& current() const { return current_; }
  /// Where the next value goes; it is the current one from now on.
  const plan::ChunkRange& advance() {
    --updates_left_;
    current_ = updates_left_ % 2 == 0 ? result_ : scratch();
    return current_;
  }

 private:
  const plan::ChunkRange& scratch() {
    if (!scratch_) scratch_ = builder_.add_scratch(result_);
    return *scratch_;
  }

  plan::PlanBuilder& builder_;
  plan::ChunkRange current_;
  plan::ChunkRange result_;
  std::optional<plan::ChunkRange> scratch_;
  int updates_left_;
};

}  // namespace unisono::algorithms
