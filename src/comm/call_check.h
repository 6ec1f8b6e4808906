// Is a call well formed, as far as one rank can tell; and what follows from it.
#pragma once

#include <cstddef>

#include "base/call_record.h"
#include "base/result.h"
#include "unisono/communicator.h"

namespace unisono {

/// What the layers below need to know about a checked call.
struct CallShape {
  bool in_place = false;
  std::size_t agreed_bytes = 0;  ///< as nccl-tests count; 0 where ranks need not agree
  std::size_t input_bytes = 0;   ///< extent from `in`
  std::size_t output_bytes = 0;  ///< extent from `out`
};

bool reduces(Collective collective);
bool is_rooted(Collective collective);
inline bool is_point_to_point(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kReceive;
}
/// True for a send or receive that check_call() certainly takes; it has the words for the others.
inline bool is_plain_message(const Call& call, int size) {
  constexpr std::size_t kCountMax = std::size_t{1} << 56;
  const bool any_source = call.collective == Collective::kReceive && call.root == kAnyRank;
  return static_cast<int>(call.type) < kDataTypeCount && call.count < kCountMax &&
         (any_source || (call.root >= 0 && call.root < size)) &&
         (call.collective == Collective::kSend ? call.in : call.out) != nullptr;
}

/// kInvalidArgument with the value and the limit: null or overlapping buffers, root or peer out of
/// range, wrong number of counts, sizes that overflow, operators without meaning.
Status check_call(const Call& call, Rank rank, int size, CallShape* shape);

/// What travels to the peers. `algorithm`: of the hint.
CallRecord make_record(const Call& call, std::uint64_t sequence, std::uint8_t algorithm);

}  // namespace unisono
