#include "comm/native_calls.h"

namespace unisono {

native::NativeCall& NativeCalls::start(const native::Arguments& arguments) {
  count_last();
  return group_->start(arguments);
}

void NativeCalls::remember(const Call& call, const CallShape& shape, const CallRecord& record) {
  const bool can_repeat = group_->can_repeat() && !has_counts(call);
  last_.remember(call, shape, record, can_repeat ? group_->starts() : 0);
  if (!can_repeat) count_last();
}

void NativeCalls::count_last() {
  const std::uint64_t times = last_.take_uncounted();
  if (times == 0) return;
  traffic_.calls[static_cast<std::size_t>(last_.collective())] += times;
  group_->count_last(last_.collective(), times, &traffic_);
}

}  // namespace unisono
