// The constants of the C API are those of the C++ API.
#include <string_view>

#include "unisono/error.h"
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
static_assert(UNISONO_ANY_RANK == kAnyRank);

bool is_one_of(int value, int count) { return value >= 0 && value < count; }

}  // namespace
}  // namespace unisono

using namespace unisono;

// Names are literals, which end with a 0.
const char* unisono_code_name(unisono_code code) {
  constexpr int kCodes = static_cast<int>(ErrorCode::kClosed) + 1;
  return is_one_of(code, kCodes) ? name_of(static_cast<ErrorCode>(code)).data() : "unknown";
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
std::size_t unisono_type_size(unisono_type type) {
  return is_one_of(type, kDataTypeCount) ? size_of(static_cast<DataType>(type)) : 0;
}
int unisono_op_is_meaningful(unisono_op op, unisono_type type) {
  return is_one_of(op, kOpKindCount) && is_one_of(type, kDataTypeCount) &&
         is_meaningful(static_cast<OpKind>(op), static_cast<DataType>(type));
}
