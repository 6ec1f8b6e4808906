// Frames that their receiver reads where they lie, instead of through the ring: one copy in place
// of two. The lender may take a frame back; message_ring.h says how both ends agree on what became
// of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/access_path.h"
#include "base/result.h"
#include "transports/frame.h"
#include "transports/shm/shared_segment.h"

namespace unisono::shm {

/// What a ring asks of whoever knows both ranks' memory. Thread rule: that of Transport.
class Loans {
 public:
  explicit Loans(std::size_t bytes_min, bool tries_private = false)
      : bytes_min_(bytes_min), tries_private_(tries_private) {}
  virtual ~Loans() = default;
  /// Smaller payloads are not worth asking for.
  std::size_t bytes_min() const { return bytes_min_; }
  /// Whether private memory is lent only where that was found to be faster (LoanTrials).
  bool tries_private() const { return tries_private_; }
  /// How world rank `peer` may read the payload of a frame; kNone where the ring is faster.
  virtual MemoryHandle lend(Rank peer, const FrameHeader& header,
                            std::span<const std::byte> payload) const = 0;
  /// Whether a message is to be lent rather than go through the ring, before anything is tried.
  virtual bool would_lend(Rank peer, std::span<const std::byte> payload) const {
    static_cast<void>(peer);
    return payload.size() >= bytes_min_;
  }
  /// Fills `out` from what `peer` lent. The handle came from a peer that may be hostile: an error
  /// where it names what this rank cannot read.
  virtual Status collect(Rank peer, const MemoryHandle& lent, std::span<std::byte> out) const = 0;

 private:
  std::size_t bytes_min_;
  bool tries_private_;
};

/// Lends pieces of point-to-point messages whose receiver waits for them. It lends no pieces of
/// collectives, which may be reduced from wherever they lie, and no eager messages, which must not
/// wait for anybody. `access`: how others may read this rank's memory; with kWindow it lends
/// nothing; with kAutomatic private memory is tried.
std::unique_ptr<Loans> make_loans(std::shared_ptr<SharedSegment> shared, AccessPath access);

}  // namespace unisono::shm
