// What a communicator remembers of its last call, so that the same call again is neither checked
// nor worked out anew.
//
// Thread rule: the thread that makes the blocking calls, under the engine's lock but for
// has_buffers_of().
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "backend/call_check.h"
#include "compute/compute.h"

namespace unisono {

bool has_counts(const Call& call);

/// The last blocking native call, if it was a small one.
class LastCall {
 public:
  /// It ran once. `start`: which of the group's calls it was, from 1; 0: it cannot be repeated.
  void remember(const Call& call, const CallShape& shape, const CallRecord& record,
                std::uint64_t start);
  void forget() { start_ = 0; }
  /// Whether `call` is it, with buffers that the same check would find right.
  bool is_again(const Call& call) const;
  bool has_buffers_of(const Call& call) const {
    return start_ != 0 && call.in == call_.in && call.out == call_.out;
  }
  std::uint64_t start() const { return start_; }
  CallRecord& record() { return record_; }
  Collective collective() const { return call_.collective; }

  void note_repeated() { ++uncounted_; }
  /// How often it has run since the last time this was asked.
  std::uint64_t take_uncounted() { return std::exchange(uncounted_, 0); }

 private:
  bool has_right_buffers(const Call& call) const;

  Call call_;
  CallShape shape_;
  CallRecord record_;
  std::uint64_t start_ = 0;
  std::uint64_t uncounted_ = 0;
};

/// The reduction of the last call that had one.
class LastReduction {
 public:
  /// For averages over so many ranks.
  explicit LastReduction(int ranks) : ranks_(ranks) {}
  void set_ranks(int ranks) { ranks_ = ranks; }
  /// Valid until the next call. Errors as Reduction::make().
  Result<const compute::Reduction*> of(const Call& call, Order order);

 private:
  int ranks_;
  std::optional<compute::Reduction> reduction_;
  DataType type_ = DataType::kUint8;
  ReduceOp op_;
  Order order_ = Order::kAny;
};

}  // namespace unisono
