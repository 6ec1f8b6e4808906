#include "bindings/c/call_conversion.h"

#include <chrono>
#include <string>

#include "bindings/c/sized.h"

namespace unisono::c {
namespace {

constexpr unisono_call_options kCallOptions = UNISONO_CALL_OPTIONS_INIT;
constexpr unisono_user_op kUserOp = UNISONO_USER_OP_INIT;
constexpr unisono_call kCall = UNISONO_CALL_INIT;

void check_value(int value, int count, const char* what, const char* operation) {
  if (value >= 0 && value < count) return;
  refuse(operation, (std::string("the ") + what + " is " + std::to_string(value) +
                     ", accepted are the constants 0 to " + std::to_string(count - 1))
                        .c_str());
}

void call_user(const void* in, void* inout, std::size_t count, DataType type, void* context) {
  const auto& op = *static_cast<const unisono_user_op*>(context);
  op.function(in, inout, count, static_cast<unisono_type>(type), op.context);
}

ReduceOp user_operator(const unisono_user_op* given, const char* operation) {
  const unisono_user_op& set =
      required(given, operation, "UNISONO_OP_USER needs unisono_call_options.user_op");
  const unisono_user_op user = with_defaults(&set, kUserOp, operation);
  if (user.reserved != 0) refuse(operation, "unisono_user_op.reserved is not 0");
  if (user.function == nullptr) refuse(operation, "unisono_user_op.function is null");
  return ops::user_op(user.name, call_user, const_cast<unisono_user_op*>(given),
                      user.is_commutative != 0);
}

ReduceOp reduce_op(unisono_op op, const unisono_call_options& options, const char* operation) {
  check_value(op, kOpKindCount, "operator", operation);
  if (op == UNISONO_OP_USER) return user_operator(options.user_op, operation);
  return {static_cast<OpKind>(op), options.factor};
}

CallOptions call_options(const unisono_call_options& given, const char* operation) {
  CallOptions options;
  options.timeout = time_limit(given.timeout_ms, operation);
  if (given.algorithm != nullptr) options.algorithm = given.algorithm;
  options.order = reduction_order(given.order, operation);
  if (given.has_stream != 0) options.stream = given.stream;
  return options;
}

}  // namespace

std::chrono::milliseconds time_limit(std::int64_t timeout_ms, const char* operation) {
  if (timeout_ms < 0) refuse(operation, "the time-out is negative; 0 is the default one");
  return std::chrono::milliseconds(timeout_ms);
}

Order reduction_order(unisono_order order, const char* operation) {
  check_value(order, kOrderCount, "order", operation);
  return static_cast<Order>(order);
}

DataType data_type(unisono_type type, const char* operation) {
  check_value(type, kDataTypeCount, "type", operation);
  return static_cast<DataType>(type);
}

Call make_call(const Kind& kind, const void* in, void* out, std::size_t count,
               const unisono_call_options* options) {
  const char* const operation = name_of(kind.collective).data();
  Call call{.collective = kind.collective,
            .in = in,
            .out = out,
            .count = count,
            .type = data_type(kind.type, operation),
            .root = kind.root};
  if (options == nullptr) {
    call.op = reduce_op(kind.op, kCallOptions, operation);
    return call;
  }
  const unisono_call_options set = with_defaults(options, kCallOptions, operation);
  call.op = reduce_op(kind.op, set, operation);
  call.options = call_options(set, operation);
  return call;
}

Call make_call(const unisono_call* given, int ranks) {
  const unisono_call set = with_defaults(&required(given, "run", "the call is null"), kCall, "run");
  check_value(set.collective, kCollectiveCount, "collective", "run");
  Call call = make_call({static_cast<Collective>(set.collective), set.type, set.op, set.root},
                        set.in, set.out, set.count, set.options);
  call.peer = set.peer;
  call.tag = set.tag;
  call.in_counts = entries(set.in_counts, ranks);
  call.in_displacements = entries(set.in_displacements, ranks);
  call.out_counts = entries(set.out_counts, ranks);
  call.out_displacements = entries(set.out_displacements, ranks);
  return call;
}

const unisono_call* call_at(const unisono_call* calls, std::size_t index) {
  check_size(*calls, "group");
  const auto* const first = reinterpret_cast<const std::byte*>(calls);
  const auto* const call = reinterpret_cast<const unisono_call*>(first + index * calls->size);
  if (call->size != calls->size) refuse("group", "the calls of one array differ in their size");
  return call;
}

}  // namespace unisono::c
