/* The constants of the C API, and what is to be known of them: names, sizes, conversions. Any
 * thread, without a communicator. C99. Programs include unisono/unisono.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNISONO_C_API __attribute__((visibility("default")))

/* In C++ as in C a value that is none of the constants may be passed, and is refused. */
#ifdef __cplusplus
#define UNISONO_AS_INT : int
#else
#define UNISONO_AS_INT
#endif

/* ErrorCode of unisono/error.h. */
typedef enum unisono_code UNISONO_AS_INT {
  UNISONO_OK = 0,
  UNISONO_INVALID_ARGUMENT = 1,
  UNISONO_UNSUPPORTED = 2,
  UNISONO_MISMATCH = 3,
  UNISONO_TIMEOUT = 4,
  UNISONO_RANK_FAILED = 5,
  UNISONO_RANK_LEFT = 6,
  UNISONO_ABORTED = 7,
  UNISONO_AUTHENTICATION = 8,
  UNISONO_RENDEZVOUS = 9,
  UNISONO_OUT_OF_RESOURCES = 10,
  UNISONO_SYSTEM = 11,
  UNISONO_PROTOCOL = 12,
  UNISONO_NOT_MEMBER = 13,
  UNISONO_CLOSED = 14,
  UNISONO_CORRUPTED = 15,
  UNISONO_PARTITIONED = 16
} unisono_code;

/* DataType of unisono/types.h. */
typedef enum unisono_type UNISONO_AS_INT {
  UNISONO_INT8 = 0,
  UNISONO_INT16 = 1,
  UNISONO_INT32 = 2,
  UNISONO_INT64 = 3,
  UNISONO_UINT8 = 4,
  UNISONO_UINT16 = 5,
  UNISONO_UINT32 = 6,
  UNISONO_UINT64 = 7,
  UNISONO_FLOAT16 = 8,
  UNISONO_BFLOAT16 = 9,
  UNISONO_FLOAT8_E4M3 = 10,
  UNISONO_FLOAT8_E5M2 = 11,
  UNISONO_FLOAT32 = 12,
  UNISONO_FLOAT64 = 13,
  UNISONO_BOOL = 14,
  UNISONO_COMPLEX64 = 15,
  UNISONO_COMPLEX128 = 16
} unisono_type;

/* OpKind of unisono/types.h. */
typedef enum unisono_op UNISONO_AS_INT {
  UNISONO_OP_SUM = 0,
  UNISONO_OP_PRODUCT = 1,
  UNISONO_OP_MIN = 2,
  UNISONO_OP_MAX = 3,
  UNISONO_OP_AVERAGE = 4,
  UNISONO_OP_PREMULTIPLIED_SUM = 5, /* its factor: unisono_call_options.factor */
  UNISONO_OP_BIT_AND = 6,
  UNISONO_OP_BIT_OR = 7,
  UNISONO_OP_BIT_XOR = 8,
  UNISONO_OP_LOGICAL_AND = 9,
  UNISONO_OP_LOGICAL_OR = 10,
  UNISONO_OP_LOGICAL_XOR = 11,
  UNISONO_OP_USER = 12 /* unisono_call_options.user_op */
} unisono_op;

/* Collective of unisono/types.h. */
typedef enum unisono_collective UNISONO_AS_INT {
  UNISONO_ALL_REDUCE = 0,
  UNISONO_REDUCE = 1,
  UNISONO_BROADCAST = 2,
  UNISONO_ALL_GATHER = 3,
  UNISONO_ALL_GATHER_V = 4,
  UNISONO_REDUCE_SCATTER = 5,
  UNISONO_REDUCE_SCATTER_V = 6,
  UNISONO_GATHER = 7,
  UNISONO_GATHER_V = 8,
  UNISONO_SCATTER = 9,
  UNISONO_SCATTER_V = 10,
  UNISONO_ALL_TO_ALL = 11,
  UNISONO_ALL_TO_ALL_V = 12,
  UNISONO_BARRIER = 13,
  UNISONO_SCAN = 14,
  UNISONO_EXSCAN = 15,
  UNISONO_SEND = 16,
  UNISONO_RECEIVE = 17
} unisono_collective;

/* Order of unisono/types.h. */
typedef enum unisono_order UNISONO_AS_INT {
  UNISONO_ORDER_ANY = 0,
  UNISONO_ORDER_CANONICAL = 1,
  UNISONO_ORDER_EXACT = 2
} unisono_order;

/* MemoryKind of unisono/types.h. */
typedef enum unisono_memory_kind UNISONO_AS_INT {
  UNISONO_HOST = 0,
  UNISONO_CUDA = 1
} unisono_memory_kind;

/* PeerAccess of unisono/registered_memory.h. */
typedef enum unisono_peer_access UNISONO_AS_INT {
  UNISONO_ACCESS_MAPPED = 0,
  UNISONO_ACCESS_SINGLE_COPY = 1,
  UNISONO_ACCESS_COPIED = 2
} unisono_peer_access;

#define UNISONO_ANY_RANK (-1) /* of a receive: whichever rank sent first */
#define UNISONO_NO_RANK (-1)  /* in errors: none, or not known */
#define UNISONO_NO_PEER (-2)  /* of a call that is no message */
/* unisono_all_reduce_addends(): of all ranks together. */
#define UNISONO_ADDENDS_MAX 4096

/* Names as the C++ API's name_of() gives them; "unknown" for a value that has no name. */
UNISONO_C_API const char* unisono_code_name(unisono_code code);
UNISONO_C_API const char* unisono_type_name(unisono_type type);
UNISONO_C_API const char* unisono_op_name(unisono_op op);
UNISONO_C_API const char* unisono_collective_name(unisono_collective collective);
UNISONO_C_API const char* unisono_order_name(unisono_order order);
/* The other way; UNISONO_INVALID_ARGUMENT where it is no such name. */
UNISONO_C_API unisono_code unisono_parse_type(const char* name, unisono_type* type);
UNISONO_C_API unisono_code unisono_parse_collective(const char* name,
                                                    unisono_collective* collective);
UNISONO_C_API unisono_code unisono_parse_order(const char* name, unisono_order* order);
/* Bytes of one element; 0 for a value that is no type. */
UNISONO_C_API size_t unisono_type_size(unisono_type type);
/* 1 where `op` means something on elements of `type`, else 0. */
UNISONO_C_API int unisono_op_is_meaningful(unisono_op op, unisono_type type);
/* `count` elements of one of the types of 16 or 8 bits (FLOAT16, BFLOAT16, FLOAT8_...) as floats,
 * and back: rounded to the nearest, to even where two are as near; see unisono/float_types.h. The
 * arrays do not overlap. */
UNISONO_C_API unisono_code unisono_to_float32(unisono_type type, const void* in, float* out,
                                              size_t count);
UNISONO_C_API unisono_code unisono_from_float32(unisono_type type, const float* in, void* out,
                                                size_t count);

#ifdef __cplusplus
}
#endif
