// The native calls of a communicator: the group that runs them, the operations that wait for their
// turn in it, and the last blocking one.
//
// Thread rule: the engine's lock.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/last_call.h"
#include "native/native.h"

namespace unisono {

class NativeOperation;

class NativeCalls {
 public:
  /// `group` may be null: members do not share memory. What is over is counted in `traffic`.
  NativeCalls(std::unique_ptr<native::Group> group, TrafficReport& traffic)
      : group_(std::move(group)), traffic_(traffic) {}

  native::Group* group() const { return group_.get(); }
  void close() { group_.reset(); }
  TrafficReport& traffic() { return traffic_; }
  LastCall& last() { return last_; }
  const LastCall& last() const { return last_; }

  /// Operations run one after the other, in the order in which they were made.
  bool is_idle() const { return queue_.empty(); }
  void line_up(NativeOperation& operation) { queue_.push_back(&operation); }
  void leave(const NativeOperation& operation) { std::erase(queue_, &operation); }
  const NativeOperation* first() const { return queue_.empty() ? nullptr : queue_.front(); }
  native::NativeCall& start(const native::Arguments& arguments);

  /// After a blocking call that is over. One with counts is counted at once: they are the caller's.
  void remember(const Call& call, const CallShape& shape, const CallRecord& record);
  /// Into the traffic, before the group starts anything else: only then is it counted.
  void count_last();

 private:
  std::unique_ptr<native::Group> group_;
  TrafficReport& traffic_;
  LastCall last_;
  std::vector<NativeOperation*> queue_;
};

}  // namespace unisono
