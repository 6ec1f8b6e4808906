// What is true of each collective, whatever carries it out: one row of one table. What the checker
// of plans and the tests hold against it is their own, because they are the oracles.
//
// Thread rule: constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "unisono/types.h"

namespace unisono {

/// CallOptions::algorithm of a call that selection decides, whatever the settings ask for: the
/// library's own calls have it.
inline constexpr std::string_view kAutomaticAlgorithm = "auto";

/// What a buffer of a rank holds.
enum class Holds : std::uint8_t {
  kNothing,
  kVector,  ///< one vector, which an algorithm cuts as it likes
  kBlock,   ///< one block, of this rank or for it
  kBlocks,  ///< one block of each rank, or for each
};

struct BufferFacts {
  Holds holds = Holds::kNothing;
  bool at_root_alone = false;

  constexpr bool is_at(Rank rank, Rank root) const { return !at_root_alone || rank == root; }
};

/// Whose input a rank's output needs.
enum class Flow : std::uint8_t {
  kNone,
  kAllToAll,
  kAllToRoot,
  kRootToAll,
  kUpToOwn,    ///< of ranks 0 to its own
  kBelowOwn,   ///< of ranks 0 to the one below it
  kBetweenTwo  ///< of a call's peer
};

/// Where input and output may be the same memory.
enum class InPlace : std::uint8_t {
  kNever,
  kAllowed,  ///< both begin at one place, or the shorter one is its own block of the longer one
  kAlways,   ///< the call has one buffer
};

struct CollectiveFacts {
  Collective collective;
  std::string_view name;
  Flow flow = Flow::kNone;
  BufferFacts input, output;
  bool reduces = false;
  bool is_uneven = false;  ///< blocks differ in length, as counts say, and may lie apart
  InPlace in_place = InPlace::kAllowed;

  constexpr bool has_root() const { return flow == Flow::kAllToRoot || flow == Flow::kRootToAll; }
  constexpr bool has_peer() const { return flow == Flow::kBetweenTwo; }
  constexpr bool is_collective() const { return flow != Flow::kNone && !has_peer(); }
  constexpr bool has_buffers() const {
    return input.holds != Holds::kNothing || output.holds != Holds::kNothing;
  }
  constexpr bool is_one_vector() const {
    return is_collective() && (input.holds == Holds::kVector || output.holds == Holds::kVector);
  }
  constexpr bool exchanges_blocks() const {
    return input.holds == Holds::kBlocks && output.holds == Holds::kBlocks;
  }
  /// Every rank gives all counts, the same ones; else each gives its own, and the root all.
  constexpr bool all_give_counts() const {
    return is_uneven && flow == Flow::kAllToAll && !exchanges_blocks();
  }
  /// All ranks know the length of every block.
  constexpr bool has_agreed_lengths() const { return !is_uneven || all_give_counts(); }
  constexpr bool has_blocks() const {
    return input.holds == Holds::kBlocks || output.holds == Holds::kBlocks;
  }
  /// An algorithm gives each rank a share of the agreed bytes to work on, block by block.
  constexpr bool is_shared_out() const {
    return flow == Flow::kAllToAll && has_buffers() && !exchanges_blocks();
  }
  /// Of some of the ranks, in their order.
  constexpr bool is_prefix() const { return flow == Flow::kUpToOwn || flow == Flow::kBelowOwn; }
};

namespace collective_rows {
using C = Collective;
using enum Flow;
using enum InPlace;
inline constexpr BufferFacts kNoBuffer{}, kVector{Holds::kVector}, kBlock{Holds::kBlock},
    kBlocks{Holds::kBlocks}, kRootVector{Holds::kVector, true}, kRootBlocks{Holds::kBlocks, true};
inline constexpr bool kReduces = true, kMoves = false, kUneven = true, kEven = false;

inline constexpr CollectiveFacts kAll[]{
    {C::kAllReduce, "all_reduce", kAllToAll, kVector, kVector, kReduces},
    {C::kReduce, "reduce", kAllToRoot, kVector, kRootVector, kReduces},
    {C::kBroadcast, "broadcast", kRootToAll, kRootVector, kVector, kMoves, kEven, kAlways},
    {C::kAllGather, "all_gather", kAllToAll, kBlock, kBlocks},
    {C::kAllGatherV, "all_gather_v", kAllToAll, kBlock, kBlocks, kMoves, kUneven},
    {C::kReduceScatter, "reduce_scatter", kAllToAll, kBlocks, kBlock, kReduces},
    {C::kReduceScatterV, "reduce_scatter_v", kAllToAll, kBlocks, kBlock, kReduces, kUneven},
    {C::kGather, "gather", kAllToRoot, kBlock, kRootBlocks},
    {C::kGatherV, "gather_v", kAllToRoot, kBlock, kRootBlocks, kMoves, kUneven},
    {C::kScatter, "scatter", kRootToAll, kRootBlocks, kBlock},
    {C::kScatterV, "scatter_v", kRootToAll, kRootBlocks, kBlock, kMoves, kUneven},
    {C::kAllToAll, "all_to_all", kAllToAll, kBlocks, kBlocks},
    {C::kAllToAllV, "all_to_all_v", kAllToAll, kBlocks, kBlocks, kMoves, kUneven, kNever},
    {C::kBarrier, "barrier", kAllToAll, kNoBuffer, kNoBuffer},
    {C::kScan, "scan", kUpToOwn, kVector, kVector, kReduces},
    {C::kExscan, "exscan", kBelowOwn, kVector, kVector, kReduces},
    {C::kSend, "send", kBetweenTwo, kVector, kNoBuffer},
    {C::kReceive, "receive", kBetweenTwo, kNoBuffer, kVector},
};
inline constexpr CollectiveFacts kUnknown{.collective = static_cast<Collective>(kCollectiveCount),
                                          .name = "unknown"};

consteval bool stand_in_the_order_of_the_values() {
  for (int i = 0; i < kCollectiveCount; ++i) {
    if (kAll[i].collective != static_cast<Collective>(i)) return false;
  }
  return std::size(kAll) == kCollectiveCount;
}
static_assert(stand_in_the_order_of_the_values());
}  // namespace collective_rows

constexpr bool is_known(Collective collective) {
  return static_cast<int>(collective) < kCollectiveCount;
}
/// A value that is no collective is named "unknown" and moves nothing.
constexpr const CollectiveFacts& facts_of(Collective collective) {
  return is_known(collective) ? collective_rows::kAll[static_cast<std::size_t>(collective)]
                              : collective_rows::kUnknown;
}
constexpr bool reduces(Collective collective) { return facts_of(collective).reduces; }
constexpr bool is_rooted(Collective collective) { return facts_of(collective).has_root(); }
constexpr bool is_point_to_point(Collective collective) { return facts_of(collective).has_peer(); }

}  // namespace unisono
