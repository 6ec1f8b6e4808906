// What a rank and the arbiter say to each other when the survivors of a communicator agree on who
// goes on, and how it looks on the wire. Every length is bounded and every field checked before
// use. Values only; safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace unisono::rendezvous {

/// In the order in which they are said, but that a kForm may follow another one.
enum class ShrinkStep : std::uint8_t {
  kAsk = 1,   ///< rank: goes on, with whoever else does
  kForm,      ///< arbiter: make the communicator of these members
  kLeftOut,   ///< arbiter, to the others: without this rank, and why
  kReady,     ///< rank: has made it
  kKnows,     ///< rank: knows that it is left out, and does not ask any more
  kCannot,    ///< rank: cannot make it, and why
  kLeaves,    ///< rank: has closed it after its failure, and will not ask
  kFinished,  ///< rank, to another arbiter: the one before has said kDone
  kDone,      ///< arbiter: all have made it
  kRefused,   ///< arbiter: goes on without this rank, or not at all, and why
};

struct ShrinkMessage {
  ShrinkStep step = ShrinkStep::kAsk;
  std::uint32_t communicator = 0;  ///< the one that is to shrink
  /// The communicator to be made, which names the attempt as well. 0 with kLeaves and kRefused, and
  /// with kAsk but where another arbiter is asked again by a rank that has made this one.
  std::uint32_t id = 0;
  /// kAsk: how long the others are waited for.
  std::chrono::milliseconds patience{0};
  /// Ascending world ranks: kAsk, kLeaves: all of `communicator`; kForm: those of `id`.
  std::vector<Rank> members;
  Status why;  ///< kLeftOut, kCannot and kRefused; names a world rank
  /// kAsk: ascending world ranks, all of `id`, which others may use by that arbiter's word.
  std::vector<Rank> made = {};
};

/// A whole message, length included, of a world of `size` ranks.
std::string encode_shrink(const ShrinkMessage& message, int size);
Result<ShrinkMessage> decode_shrink(std::string_view body, int size);

}  // namespace unisono::rendezvous
