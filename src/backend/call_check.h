// Checks whether a call is well formed, as far as one rank can tell, and derives what the layers
// below need to know of it.
#pragma once

#include <cstddef>

#include "base/block_counts.h"
#include "base/call_record.h"
#include "base/collective.h"
#include "base/limits.h"
#include "base/result.h"
#include "unisono/communicator.h"

namespace unisono {

/// What the layers below need to know about a checked call. What one of them makes of it where
/// ranks share memory is a native::Transfer.
struct CallShape {
  bool in_place = false;
  std::size_t agreed_bytes = 0;  ///< as nccl-tests count; 0 where ranks need not agree
  std::size_t input_bytes = 0;   ///< extent from `in`
  std::size_t output_bytes = 0;  ///< extent from `out`
};

/// True for a send or receive that check_call() certainly takes; it has the words for the others.
inline bool is_plain_message(const Call& call, int size) {
  constexpr std::size_t kCountMax = kBufferBytesMax / 16;  // of the largest elements
  const bool any_source = call.collective == Collective::kReceive && call.peer == kAnyRank;
  return static_cast<int>(call.type) < kDataTypeCount && call.count <= kCountMax &&
         (any_source || (call.peer >= 0 && call.peer < size)) &&
         (call.collective == Collective::kSend ? call.in : call.out) != nullptr;
}

/// Bytes of `count` elements for each of `blocks`: the one way from counts to bytes.
/// kInvalidArgument with the count and the limit where no buffer can have as many.
Status buffer_bytes(std::size_t count, std::size_t blocks, std::size_t element_bytes,
                    std::size_t* bytes);

/// kInvalidArgument with the value and the limit: null or overlapping buffers, root or peer out of
/// range, wrong number of counts, sizes that overflow, output blocks that overlap, operators
/// without meaning.
Status check_call(const Call& call, Rank rank, int size, CallShape* shape);

/// Sets the count of a call on two typed buffers of these lengths, in elements. kInvalidArgument
/// where one is too short, or holds no blocks of one length where it has to.
Status fit_buffers(Call* call, std::size_t in_elements, std::size_t out_elements, Rank rank,
                   int size);

/// Makes it the in-place call on one typed buffer, call->out: the larger of the call's two. Where
/// only the root has that one, others have their own block. Errors as fit_buffers().
Status place_in_buffer(Call* call, std::size_t elements, Rank rank, int size);

/// What a record has of a user operator's name.
std::uint32_t hash_of_name(const char* name);
/// What travels to the peers. `order`: of its reduction; `history`: digest of the collectives
/// before; `algorithm`: of the hint.
CallRecord make_record(const Call& call, Order order, std::uint32_t history,
                       std::uint8_t algorithm);
/// The same for a send or receive, which has no history and no algorithm, in a third of the time.
inline CallRecord message_record(const Call& call) {
  CallRecord record;
  record.collective = static_cast<std::uint8_t>(call.collective);
  record.type = static_cast<std::uint8_t>(call.type);
  record.root = -1;
  record.count = call.count;
  return record;
}

}  // namespace unisono
