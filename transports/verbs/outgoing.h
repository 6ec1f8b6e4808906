// What one link sends: the ring's copy, the frames lent to the peer for reading, and how much the
// peer can take. Survives the queue pairs: after a new epoch it goes on where the peer is. Owned by
// a Link, used by its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "transports/transport.h"
#include "transports/verbs/fixed_queue.h"
#include "transports/verbs/path_resolver.h"
#include "transports/verbs/queue_pair.h"
#include "transports/verbs/registration.h"
#include "transports/verbs/send_ring.h"
#include "transports/verbs/staging.h"

namespace unisono::verbs {

/// What all links of a rank share.
struct LinkResources {
  Rails rails;
  const VerbsOptions& options;
  RegistrationCache& cache;
  Staging& staging;
  WorkCounts& counts;
  /// Pieces that a peer may have in flight to this rank: what its poorest rail can take.
  int immediates;
  PathResolver* paths;  ///< null: paths are what both ends tell each other
};

/// Payloads up to this travel in the ring; larger ones are read from where they lie.
inline constexpr std::size_t kWholePayloadMax = 16 * 1024;

/// Pieces of the ring that may be on their way at once, however many the peer would take.
inline constexpr std::size_t kWritesMax = 256;

class Outgoing {
 public:
  Outgoing(const LinkResources& shared, std::unique_ptr<RailMemory> ring)
      : shared_(shared),
        memory_(std::move(ring)),
        ring_({memory_->begin(), shared.options.ring_bytes}, shared.options.checksum) {}
  ~Outgoing();

  PostResult post(const FrameHeader& header, std::span<const std::byte> payload,
                  std::uint64_t token);
  /// Whether the peer may be reading payload behind `token`: then the queue pairs have to be closed
  /// before cancel().
  bool is_exposed(std::uint64_t token);
  /// The payload is the caller's again, of all frames posted with this token. The peer gets copies,
  /// because it may be in the middle of one and counts lent frames.
  void cancel(std::uint64_t token);

  /// A new epoch: where the peer's ring is and what it has had. kProtocol: impossible positions.
  Status resume(const Hello& hello);
  /// Stages writes of what the peer has room for.
  void stage(QueuePair& control);
  Status consumed(std::uint32_t value);
  Status read(std::uint32_t value);
  /// Hands back the tokens of payloads that were read.
  bool return_tokens(Rank peer, FrameSink& sink);
  /// Hands back all tokens: nothing will be sent any more.
  void drop(Rank peer, FrameSink& sink);

  /// Everything was written and every lent payload read.
  bool is_settled() const { return ring_.appended() == ring_.posted() && lent_.empty(); }
  bool has_unposted() const { return ring_.appended() != ring_.posted(); }
  std::uint64_t appended() const { return ring_.appended(); }
  std::uint64_t lent_count() const { return first_ + lent_.size(); }
  /// Where the payloads of the lent frames lie, oldest first.
  std::vector<Source> sources() const;

 private:
  struct Lent {
    std::uint64_t token = 0;
    std::uint64_t position = 0;
    Source source;
    Registration* held = nullptr;      ///< the user's memory
    std::byte* slot = nullptr;         ///< or a copy in staging
    std::unique_ptr<RailMemory> copy;  ///< or a copy of a cancelled payload
    std::size_t bytes = 0;
    bool owes_token = false;
  };
  PostResult lend(const FrameHeader& header, std::span<const std::byte> payload,
                  std::uint64_t token);
  bool stage_copy(Lent* lent, std::span<const std::byte> payload);
  std::unique_ptr<RailMemory> copy_of(const Lent& lent) const;
  void keep_copy(Lent* lent);
  Status finish_until(std::uint64_t count);
  void finish_first();
  Source source_of(const std::byte* begin, const Registration& registration) const;
  void release(Lent* lent);

  const LinkResources& shared_;
  std::unique_ptr<RailMemory> memory_;
  SendRing ring_;
  FixedQueue<Lent, kLentMax> lent_;
  std::uint64_t first_ = 0;  ///< lent payloads before lent_.front(), all read
  /// Of payloads that were read, to be handed back by poll().
  FixedQueue<std::uint64_t, 2 * kLentMax> tokens_;
  // The peer's ring in this epoch.
  std::uint64_t ring_address_ = 0;
  std::array<std::uint32_t, kRailsMax> ring_keys_{};
  std::size_t writes_max_ = 0;
  /// Ends of the pieces that the peer has not consumed.
  FixedQueue<std::uint64_t, kWritesMax> writes_;
};

}  // namespace unisono::verbs
