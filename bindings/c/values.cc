// The constants of the C API are those of the C++ API.
#include <cstring>
#include <string>
#include <string_view>

#include "bindings/c/failure.h"
#include "unisono/addends.h"
#include "unisono/error.h"
#include "unisono/float_types.h"
#include "unisono/registered_memory.h"
#include "unisono/types.h"
#include "unisono/unisono.h"

namespace unisono {
namespace {

template <typename Enum, typename Constant>
constexpr bool same(Constant constant, Enum value) {
  return static_cast<int>(constant) == static_cast<int>(value);
}

static_assert(same(UNISONO_OK, ErrorCode::kOk));
static_assert(same(UNISONO_INVALID_ARGUMENT, ErrorCode::kInvalidArgument));
static_assert(same(UNISONO_UNSUPPORTED, ErrorCode::kUnsupported));
static_assert(same(UNISONO_MISMATCH, ErrorCode::kMismatch));
static_assert(same(UNISONO_TIMEOUT, ErrorCode::kTimeout));
static_assert(same(UNISONO_RANK_FAILED, ErrorCode::kRankFailed));
static_assert(same(UNISONO_RANK_LEFT, ErrorCode::kRankLeft));
static_assert(same(UNISONO_ABORTED, ErrorCode::kAborted));
static_assert(same(UNISONO_AUTHENTICATION, ErrorCode::kAuthentication));
static_assert(same(UNISONO_RENDEZVOUS, ErrorCode::kRendezvous));
static_assert(same(UNISONO_OUT_OF_RESOURCES, ErrorCode::kOutOfResources));
static_assert(same(UNISONO_SYSTEM, ErrorCode::kSystem));
static_assert(same(UNISONO_PROTOCOL, ErrorCode::kProtocol));
static_assert(same(UNISONO_NOT_MEMBER, ErrorCode::kNotMember));
static_assert(same(UNISONO_CLOSED, ErrorCode::kClosed));
static_assert(same(UNISONO_CORRUPTED, ErrorCode::kCorrupted));
static_assert(same(UNISONO_PARTITIONED, ErrorCode::kPartitioned));

static_assert(same(UNISONO_INT8, DataType::kInt8));
static_assert(same(UNISONO_INT16, DataType::kInt16));
static_assert(same(UNISONO_INT32, DataType::kInt32));
static_assert(same(UNISONO_INT64, DataType::kInt64));
static_assert(same(UNISONO_UINT8, DataType::kUint8));
static_assert(same(UNISONO_UINT16, DataType::kUint16));
static_assert(same(UNISONO_UINT32, DataType::kUint32));
static_assert(same(UNISONO_UINT64, DataType::kUint64));
static_assert(same(UNISONO_FLOAT16, DataType::kFloat16));
static_assert(same(UNISONO_BFLOAT16, DataType::kBfloat16));
static_assert(same(UNISONO_FLOAT8_E4M3, DataType::kFloat8E4m3));
static_assert(same(UNISONO_FLOAT8_E5M2, DataType::kFloat8E5m2));
static_assert(same(UNISONO_FLOAT32, DataType::kFloat32));
static_assert(same(UNISONO_FLOAT64, DataType::kFloat64));
static_assert(same(UNISONO_BOOL, DataType::kBool));
static_assert(same(UNISONO_COMPLEX64, DataType::kComplex64));
static_assert(same(UNISONO_COMPLEX128, DataType::kComplex128) && kDataTypeCount == 17);

static_assert(same(UNISONO_OP_SUM, OpKind::kSum));
static_assert(same(UNISONO_OP_PRODUCT, OpKind::kProduct));
static_assert(same(UNISONO_OP_MIN, OpKind::kMin));
static_assert(same(UNISONO_OP_MAX, OpKind::kMax));
static_assert(same(UNISONO_OP_AVERAGE, OpKind::kAverage));
static_assert(same(UNISONO_OP_PREMULTIPLIED_SUM, OpKind::kPremultipliedSum));
static_assert(same(UNISONO_OP_BIT_AND, OpKind::kBitAnd));
static_assert(same(UNISONO_OP_BIT_OR, OpKind::kBitOr));
static_assert(same(UNISONO_OP_BIT_XOR, OpKind::kBitXor));
static_assert(same(UNISONO_OP_LOGICAL_AND, OpKind::kLogicalAnd));
static_assert(same(UNISONO_OP_LOGICAL_OR, OpKind::kLogicalOr));
static_assert(same(UNISONO_OP_LOGICAL_XOR, OpKind::kLogicalXor));
static_assert(same(UNISONO_OP_USER, OpKind::kUser) && kOpKindCount == 13);

static_assert(same(UNISONO_ALL_REDUCE, Collective::kAllReduce));
static_assert(same(UNISONO_REDUCE, Collective::kReduce));
static_assert(same(UNISONO_BROADCAST, Collective::kBroadcast));
static_assert(same(UNISONO_ALL_GATHER, Collective::kAllGather));
static_assert(same(UNISONO_ALL_GATHER_V, Collective::kAllGatherV));
static_assert(same(UNISONO_REDUCE_SCATTER, Collective::kReduceScatter));
static_assert(same(UNISONO_REDUCE_SCATTER_V, Collective::kReduceScatterV));
static_assert(same(UNISONO_GATHER, Collective::kGather));
static_assert(same(UNISONO_GATHER_V, Collective::kGatherV));
static_assert(same(UNISONO_SCATTER, Collective::kScatter));
static_assert(same(UNISONO_SCATTER_V, Collective::kScatterV));
static_assert(same(UNISONO_ALL_TO_ALL, Collective::kAllToAll));
static_assert(same(UNISONO_ALL_TO_ALL_V, Collective::kAllToAllV));
static_assert(same(UNISONO_BARRIER, Collective::kBarrier));
static_assert(same(UNISONO_SCAN, Collective::kScan));
static_assert(same(UNISONO_EXSCAN, Collective::kExscan));
static_assert(same(UNISONO_SEND, Collective::kSend));
static_assert(same(UNISONO_RECEIVE, Collective::kReceive) && kCollectiveCount == 18);

static_assert(same(UNISONO_ORDER_ANY, Order::kAny));
static_assert(same(UNISONO_ORDER_CANONICAL, Order::kCanonical));
static_assert(same(UNISONO_ORDER_EXACT, Order::kExact));
static_assert(same(UNISONO_HOST, MemoryKind::kHost));
static_assert(same(UNISONO_CUDA, MemoryKind::kCuda));
static_assert(same(UNISONO_ACCESS_MAPPED, PeerAccess::kMapped));
static_assert(same(UNISONO_ACCESS_SINGLE_COPY, PeerAccess::kSingleCopy));
static_assert(same(UNISONO_ACCESS_COPIED, PeerAccess::kCopied));
static_assert(UNISONO_ANY_RANK == kAnyRank && UNISONO_NO_PEER == kNoRank);
static_assert(UNISONO_ADDENDS_MAX == kAddendsMax);

bool is_one_of(int value, int count) { return value >= 0 && value < count; }

template <typename Value, typename Constant>
unisono_code parse_name(const char* name, const char* what, Constant* taker) {
  return c::guarded([&] {
    const std::string_view text = &c::required(name, "parse", "the name is null");
    Constant& made = c::required(taker, "parse", "there is no place for the value");
    Value value{};
    if (!parse(text, &value)) {
      c::refuse("parse", ("\"" + std::string(text) + "\" is the name of no " + what).c_str());
    }
    made = static_cast<Constant>(value);
  });
}

/// Runs `body` with a value of the C++ type that `type` is, where it has conversions of its own.
template <typename Body>
unisono_code with_small_float(unisono_type type, const void* in, void* out, std::size_t count,
                              const Body& body) {
  return c::guarded([&] {
    if (count > 0 && (in == nullptr || out == nullptr)) c::refuse("convert", "an array is null");
    switch (type) {
      case UNISONO_FLOAT16:
        return body(Float16{});
      case UNISONO_BFLOAT16:
        return body(Bfloat16{});
      case UNISONO_FLOAT8_E4M3:
        return body(Float8E4m3{});
      case UNISONO_FLOAT8_E5M2:
        return body(Float8E5m2{});
      default:
        c::refuse("convert", "only floating-point types of 8 and 16 bits are converted");
    }
  });
}

void encode(float value, Float16* to) { *to = to_float16(value); }
void encode(float value, Bfloat16* to) { *to = to_bfloat16(value); }
void encode(float value, Float8E4m3* to) { *to = to_float8_e4m3(value); }
void encode(float value, Float8E5m2* to) { *to = to_float8_e5m2(value); }

}  // namespace
}  // namespace unisono

using namespace unisono;

// Names are literals, which end with a 0.
const char* unisono_code_name(unisono_code code) {
  return is_one_of(code, kErrorCodeCount) ? name_of(static_cast<ErrorCode>(code)).data()
                                          : "unknown";
}
const char* unisono_type_name(unisono_type type) {
  return is_one_of(type, kDataTypeCount) ? name_of(static_cast<DataType>(type)).data() : "unknown";
}
const char* unisono_op_name(unisono_op op) {
  return is_one_of(op, kOpKindCount) ? name_of(static_cast<OpKind>(op)).data() : "unknown";
}
const char* unisono_collective_name(unisono_collective collective) {
  return is_one_of(collective, kCollectiveCount)
             ? name_of(static_cast<Collective>(collective)).data()
             : "unknown";
}
const char* unisono_order_name(unisono_order order) {
  return is_one_of(order, kOrderCount) ? name_of(static_cast<Order>(order)).data() : "unknown";
}
unisono_code unisono_parse_type(const char* name, unisono_type* type) {
  return parse_name<DataType>(name, "type", type);
}
unisono_code unisono_parse_collective(const char* name, unisono_collective* collective) {
  return parse_name<Collective>(name, "collective", collective);
}
unisono_code unisono_parse_order(const char* name, unisono_order* order) {
  return parse_name<Order>(name, "order", order);
}
std::size_t unisono_type_size(unisono_type type) {
  return is_one_of(type, kDataTypeCount) ? size_of(static_cast<DataType>(type)) : 0;
}
int unisono_op_is_meaningful(unisono_op op, unisono_type type) {
  return is_one_of(op, kOpKindCount) && is_one_of(type, kDataTypeCount) &&
         is_meaningful(static_cast<OpKind>(op), static_cast<DataType>(type));
}
unisono_code unisono_to_float32(unisono_type type, const void* in, float* out, std::size_t count) {
  return with_small_float(type, in, out, count, [&](auto value) {
    const auto* const from = static_cast<const std::byte*>(in);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(&value, from + i * sizeof value, sizeof value);
      out[i] = to_float(value);
    }
  });
}
unisono_code unisono_from_float32(unisono_type type, const float* in, void* out,
                                  std::size_t count) {
  return with_small_float(type, in, out, count, [&](auto value) {
    auto* const to = static_cast<std::byte*>(out);
    for (std::size_t i = 0; i < count; ++i) {
      encode(in[i], &value);
      std::memcpy(to + i * sizeof value, &value, sizeof value);
    }
  });
}
