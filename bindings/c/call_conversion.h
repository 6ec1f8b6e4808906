// From the C API's calls to those of the C++ API. Values are checked before they become those of
// an enumeration; pointers and counts are the library's own to check.
#pragma once

#include "unisono/call.h"
#include "unisono/unisono.h"

namespace unisono::c {

/// The facts of a call of any kind, without its buffers.
struct Kind {
  Collective collective;
  unisono_type type = UNISONO_UINT8;
  unisono_op op = UNISONO_OP_SUM;
  Rank root = 0;
};

DataType data_type(unisono_type type, const char* operation);
Order reduction_order(unisono_order order, const char* operation);
/// 0: the default one. Negative ones are refused.
std::chrono::milliseconds time_limit(std::int64_t timeout_ms, const char* operation);

/// Throws kInvalidArgument for values that are none.
Call make_call(const Kind& kind, const void* in, void* out, std::size_t count,
               const unisono_call_options* options);
/// `ranks` is how many entries the arrays of counts have.
Call make_call(const unisono_call* call, int ranks);
/// The entries, or an empty span where there are none.
inline std::span<const std::size_t> entries(const std::size_t* counts, int ranks) {
  if (counts == nullptr) return {};
  return {counts, static_cast<std::size_t>(ranks)};
}

/// The call at `index` of an array whose elements are as large as the caller knows them.
const unisono_call* call_at(const unisono_call* calls, std::size_t index);

}  // namespace unisono::c
