// What a rank tells the others about its part of a device call before anything is enqueued: where
// its buffers are, what they may do with them, where its stream stands. All ranks read all of
// them and so decide alike.
//
// Travels in a host collective, as it is, between ranks of one host and one build; values of a
// plain struct, checked by whoever uses them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/kernels/device_work.h"
#include "cuda/memory/device_memory.h"
#include "cuda/synchronisation/page_ticket.h"

namespace unisono::device {

inline constexpr int kRanksMax = cuda::kWorkRanksMax;

struct Descriptor {
  cuda::BufferTicket input;
  cuda::BufferTicket output;
  PageTicket flags;
  PageTicket graph_flags;  ///< of captured calls of processes: more words, where they are needed
  /// Why this rank's part cannot be done by kernels (FallbackReason); 0: it can.
  std::uint32_t fallback = 0;
  /// The rank's stream is being captured into the graph of this number; 0: it is not.
  std::uint64_t capture = 0;
  /// A handle that means something in the rank's own process only.
  std::uint64_t ready = 0;  ///< event: recorded on the stream before the exchange
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint64_t count = 0;  ///< elements, of calls whose ranks need not agree on it
  double scalar = 1.0;      ///< kPremultipliedSum
};

/// Behind it, only for collectives with counts: elements, by rank.
struct DescriptorCounts {
  std::uint64_t input_counts[kRanksMax];
  std::uint64_t input_displacements[kRanksMax];
  std::uint64_t output_counts[kRanksMax];
  std::uint64_t output_displacements[kRanksMax];
};

enum class FallbackReason : std::uint32_t {
  kNone,
  kHostMemory,      ///< a buffer is host memory
  kUnshareable,     ///< a buffer cannot be mapped by other processes
  kUserOperator,    ///< a function of the host
  kExactOrder,      ///< sums that no kernel does
  kNoMemops,        ///< the device has no stream memory operations
  kNoWideMemops,    ///< nor any of 64 bits, which graphs of processes need
  kNoPeerAccess,    ///< the device cannot reach the memory of another member's
  kSharedDevice,    ///< ranks of several jobs are in the process, and too many streams wait
  kNoNumber,        ///< of a communicator, for the ranks of its host or one of each host
  kInvalidCapture,  ///< of the stream
};
/// For people; safe on any number.
const char* words_for(FallbackReason reason);

static_assert(std::is_trivially_copyable_v<Descriptor> &&
              std::is_trivially_copyable_v<DescriptorCounts>);

}  // namespace unisono::device
