// Objects on their way in rounds through staging, from memory or a producer, to a callback.
// Thread rule: as Communicator; callbacks run on the calling thread.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "objects/rounds.h"
#include "objects/staging.h"
#include "unisono/objects.h"

namespace unisono::objects {

/// What the communicator is told that it moves.
inline constexpr DataType kByte = DataType::kUint8;

enum class Pattern : std::uint8_t { kGather, kAllGather, kBroadcast };

/// One call's transfer on this rank. All ranks give the same pattern, root, sizes and bound.
class Stream {
 public:
  /// `sink` null: this rank takes nothing. Callbacks and source outlive the stream.
  Stream(Communicator& communicator, Pattern pattern, Rank root, const ObjectSource& source,
         const ObjectSink* sink, const CallOptions& options);

  /// Throws what the communicator throws, and std::bad_alloc; never what a callback threw.
  void run(std::vector<std::uint64_t> sizes, std::uint64_t bound);
  /// The first exception of this rank's callbacks, or null.
  std::exception_ptr callback_failure() const { return failure_; }
  bool producer_failed() const { return producer_failed_; }

 private:
  bool sends() const;
  std::size_t staging_bytes(const Rounds& rounds) const;
  const std::byte* make_own_piece(const Rounds& rounds, Staging& staging);
  void exchange(const Rounds& rounds, const std::byte* own, Staging& staging);
  void deliver(const Rounds& rounds, const std::byte* own, Staging& staging, bool is_first);
  void hand_over(const ObjectPiece& piece);

  Communicator& communicator_;
  const Pattern pattern_;
  const Rank root_;
  const Rank rank_;
  const ObjectSource& source_;
  const ObjectSink* const sink_;
  const CallOptions options_;
  std::vector<std::size_t> counts_;  // of exchange(), kept for its memory
  bool sink_failed_ = false;
  bool producer_failed_ = false;
  std::exception_ptr failure_;
};

}  // namespace unisono::objects
