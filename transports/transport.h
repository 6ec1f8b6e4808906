// The contract of every transport: frames between this rank and its peers, in order per peer
// (kData frames of one message excepted), never lost, never duplicated, never blocking.
//
// Thread rule: one thread at a time (the engine's) calls everything here. Calls into FrameSink are
// made from poll() only, never from post_send(). Ranks are world ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/handshake.h"
#include "base/result.h"
#include "transports/frame.h"

namespace unisono {

/// Where the payload of an arriving frame goes.
struct Placement {
  enum class Kind : std::uint8_t {
    kInto,     ///< write it to `target` (payload_bytes of room)
    kDeliver,  ///< hand it to FrameSink::deliver from wherever it lies (ring, staging), in pieces
    kDiscard,
  };
  Kind kind = Kind::kDiscard;
  std::byte* target = nullptr;
};

/// The engine's side. For each frame: place() once, deliver() 0..n times (kDeliver only; pieces in
/// order, each starting at a multiple of 64 bytes of the payload), received() once. Of one peer
/// only kData frames may be on their way at once: any other is received before the next is placed.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual Placement place(Rank peer, const FrameHeader& header) = 0;
  virtual void deliver(Rank peer, const FrameHeader& header, std::size_t offset,
                       std::span<const std::byte> piece) = 0;
  virtual void received(Rank peer, const FrameHeader& header) = 0;
  /// The payload posted with `token` is no longer referenced.
  virtual void sent(Rank peer, std::uint64_t token) = 0;
  /// The link is gone, after all data that had arrived was handed over. `cause` is ok when the
  /// peer said goodbye, and names this rank where the end is its own fault alone, as for lack of
  /// memory. Called once per peer; every pending token of it is reported sent() first.
  virtual void closed(Rank peer, const Status& cause) = 0;
};

enum class PostResult : std::uint8_t {
  kDone,     ///< taken and captured: the payload is the caller's again, no sent() follows
  kPending,  ///< taken; the payload is lent until sent(token)
  kFull,     ///< not taken; try again after poll()
};

/// A point-to-point message that somebody waits for, and where it goes.
struct AwaitedMessage {
  std::uint32_t communicator = 0;
  std::uint32_t index = 0;    ///< the tag
  std::span<std::byte> room;  ///< as long as the message
  std::uint64_t credit = 0;   ///< out: the eager credit that has come with it, unchecked
};

enum class TakeResult : std::uint8_t {
  kNothing,  ///< nothing has arrived
  kTaken,
  kOther,  ///< what comes next of this peer, if anything does, is poll()'s
};

/// One peer as seen by one transport.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  /// Takes the peer's next frame past poll() and the sink, if it is the awaited message, eager and
  /// wholly here. For endpoints where a look costs a few loads; others leave it to poll().
  virtual TakeResult take_awaited(AwaitedMessage& awaited) {
    static_cast<void>(awaited);
    return TakeResult::kOther;
  }
  /// Whether a message between two ranks goes without a grant though it is larger than
  /// EndpointTraits::eager_bytes_max. Its sender alone decides.
  virtual bool sends_unasked(std::span<const std::byte> payload) const {
    static_cast<void>(payload);
    return false;
  }
  /// How much of `rest`, what is still to be sent of a granted message, the next kData frame
  /// carries: all, or a multiple of kFramePayloadMax.
  virtual std::size_t frame_bytes(const FrameHeader& header, std::span<const std::byte> rest) {
    static_cast<void>(header);
    return std::min(rest.size(), kFramePayloadMax);
  }
  /// Never blocks. Before the connection stands frames are queued up to a small bound, then kFull.
  /// On a closed endpoint the frame is dropped and kDone returned: closed() has told the engine.
  virtual PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                               std::uint64_t token) = 0;
  /// The operation behind a kPending token failed: afterwards its payload is not referenced and
  /// sent(token) will not come. A frame that has begun is completed from a copy of the rest, so
  /// that the channel survives for others. So is one of kind kEager that has not begun, since a
  /// later message with its tag must not come in its place; any other is dropped. Where there is no
  /// memory for a copy, the link is broken off instead: the payload is not referenced in any case.
  virtual void cancel(std::uint64_t token) = 0;
  /// Frames that are being received into [begin, begin + bytes) are discarded from now on: the
  /// memory goes back to the user.
  virtual void abandon(const std::byte* begin, std::size_t bytes) = 0;
};

struct EndpointTraits {
  /// Larger messages wait for a grant. Of collectives both ends decide by this: who changes it for
  /// a transport raises kWireVersion.
  std::size_t eager_bytes_max = 16 * 1024;
  /// Unconsumed eager bytes per (communicator, channel).
  std::size_t eager_credit_bytes = 256 * 1024;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual EndpointTraits traits() const = 0;
  /// Of the channel to one peer; both of its ends must come to the same.
  virtual EndpointTraits traits_to(Rank peer) const {
    static_cast<void>(peer);
    return traits();
  }
  /// What peers need to reach this rank; travels in the world table. At most 1 KiB.
  virtual std::string address() const = 0;
  /// The job this rank has joined, for transports that authenticate; before set_peers().
  virtual void set_identity(const std::string& job_id, const JobKey& key) {
    static_cast<void>(job_id);
    static_cast<void>(key);
  }
  /// The addresses of all ranks, by world rank (empty: not reachable by this transport).
  virtual Status set_peers(std::vector<std::string> addresses) = 0;
  /// Made on first use, connecting in the background; an incoming connection attaches to it.
  virtual Endpoint& endpoint(Rank peer) = 0;
  /// Sends and receives what is possible now, over all active endpoints. True if anything moved.
  virtual bool poll(FrameSink& sink) = 0;
  /// Whether messages of `bytes` to and from `peer` may lie in device memory that is offered
  /// meanwhile (DirectMemory). An error says why they must pass through memory of the host.
  virtual Status admits_direct(Rank peer, std::size_t bytes) const {
    static_cast<void>(peer);
    static_cast<void>(bytes);
    return Status(ErrorCode::kUnsupported,
                  std::string(name()) + " carries what lies in host memory alone");
  }
  /// Keeps host memory known to the adapters from now on, so that no message in it has to register
  /// it; once for each unpin() of the same bytes. kUnsupported where nothing is registered;
  /// kOutOfResources names the limit.
  virtual Status pin(std::span<const std::byte> memory) {
    static_cast<void>(memory);
    return Status(ErrorCode::kUnsupported, std::string(name()) + " registers no memory");
  }
  virtual void unpin(std::span<const std::byte> memory) { static_cast<void>(memory); }
  /// True while something taken from a caller waits here for poll() to send it.
  virtual bool has_unsent() const = 0;
  /// The job says that this peer is dead: payloads that have not gone to it are given back, and
  /// close() does not wait for it. Nothing is reported.
  /// Nothing to do where nothing is ever unsent.
  virtual void give_up(Rank peer, FrameSink& sink) {
    static_cast<void>(peer);
    static_cast<void>(sink);
  }
  /// Sends what is queued until the deadline, says goodbye, closes. Idempotent.
  virtual void close(TimePoint deadline, FrameSink& sink) = 0;
};

/// yes, or the reason why not.
struct Probe {
  bool usable = false;
  std::string reason;
};

}  // namespace unisono
