#include "backend/last_call.h"

#include <bit>

namespace unisono {
namespace {

// 0 and -0 are equal, but not what they make of a number.
bool has_equal_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

bool computes_as(const ReduceOp& a, const ReduceOp& b) {
  return a.kind == b.kind && has_equal_bits(a.scalar, b.scalar) && a.function == b.function &&
         a.context == b.context && a.commutative == b.commutative;
}

// By its text, as peers compare it: that is the caller's, and may have changed where it stands.
bool has_name_in(const ReduceOp& op, const CallRecord& record) {
  return op.kind != OpKind::kUser ||
         (op.name != nullptr && hash_of_name(op.name) == record.details);
}

}  // namespace

bool has_counts(const Call& call) {
  return !(call.in_counts.empty() && call.in_displacements.empty() && call.out_counts.empty() &&
           call.out_displacements.empty());
}

void LastCall::remember(const Call& call, const CallShape& shape, const CallRecord& record,
                        std::uint64_t start) {
  call_ = call;
  shape_ = shape;
  record_ = record;
  start_ = start;
  uncounted_ = 1;
}

bool LastCall::is_again(const Call& call) const {
  if (start_ == 0 || call.collective != call_.collective || call.count != call_.count ||
      call.type != call_.type || call.root != call_.root ||
      call.options.order != call_.options.order || !call.options.algorithm.empty() ||
      !call_.options.algorithm.empty() || has_counts(call) || !computes_as(call.op, call_.op) ||
      !has_name_in(call.op, record_)) {
    return false;
  }
  return has_buffers_of(call) || has_right_buffers(call);
}

// In place, the one buffer has to lie in the other one where it did.
bool LastCall::has_right_buffers(const Call& call) const {
  const bool reads = shape_.input_bytes > 0, writes = shape_.output_bytes > 0;
  if ((reads && call.in == nullptr) || (writes && call.out == nullptr)) return false;
  if (!reads || !writes) return true;
  const auto in = reinterpret_cast<std::uintptr_t>(call.in);
  const auto out = reinterpret_cast<std::uintptr_t>(call.out);
  if (shape_.in_place) {
    return in - out ==
           reinterpret_cast<std::uintptr_t>(call_.in) - reinterpret_cast<std::uintptr_t>(call_.out);
  }
  return in + shape_.input_bytes <= out || out + shape_.output_bytes <= in;
}

Result<const compute::Reduction*> LastReduction::of(const Call& call, Order order) {
  if (!reduction_ || type_ != call.type || order_ != order || !computes_as(op_, call.op)) {
    UNISONO_ASSIGN(reduction_, compute::Reduction::make(call.type, call.op, ranks_, order));
    type_ = call.type;
    op_ = call.op;
    order_ = order;
  }
  return &*reduction_;
}

}  // namespace unisono
