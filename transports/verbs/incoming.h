// What one link receives: records out of the ring, and the large payloads they name, read straight
// to where the engine wants them. Frames are handed over in the order of the ring; only pieces of
// granted messages (kData) are read several at a time. Survives the queue pairs: reads that were
// under way are made again. Owned by a Link, used by its thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "transports/transport.h"
#include "transports/verbs/fixed_queue.h"
#include "transports/verbs/outgoing.h"
#include "transports/verbs/queue_pairs.h"
#include "transports/verbs/receive_ring.h"

namespace unisono::verbs {

class Incoming {
 public:
  Incoming(Rank peer, const LinkResources& shared, std::unique_ptr<RailMemory> ring)
      : peer_(peer),
        shared_(shared),
        memory_(std::move(ring)),
        ring_({memory_->begin(), shared.options.ring_bytes},
              shared.options.checksum ? std::optional(peer) : std::nullopt) {}
  ~Incoming();

  /// Hands over what has come and stages reads. True: something moved. kProtocol: rubbish.
  /// kCorrupted: a checksum differs; what it is of is not handed over. Both say over which port.
  Result<bool> progress(QueuePairs& queue_pairs, FrameSink& sink);
  /// The peer says how far its ring is written. kProtocol where that cannot be.
  Status written(std::uint32_t value);
  /// When it leaves it says it in full, which has to be waited for while there are queue pairs.
  Status check_position(std::uint64_t position) const { return ring_.check_position(position); }
  /// The queue pairs are gone, and everything up to this position lies here.
  Status written_up_to(std::uint64_t position) { return ring_.written_up_to(position); }
  bool may_be_written_up_to(std::uint64_t position) const {
    return ring_.may_be_written_up_to(position);
  }

  /// Whether a read into [begin, begin + bytes) is under way: then the queue pairs have to be
  /// closed before abandon().
  bool is_being_read(const std::byte* begin, std::size_t bytes) const;
  void abandon(const std::byte* begin, std::size_t bytes);

  /// The queue pairs are gone: what they were reading will be read anew, if at all.
  void forget_readers();
  /// A new epoch begins: what was under way starts over.
  void restart();
  /// The peer says where its lent payloads lie now. kProtocol where it leaves some out.
  Status resume(const Hello& hello);

  /// What the peer waits for: payloads read, and room in the ring before it runs out of it.
  void stage_acknowledgements(QueuePair& control);

  /// Forgets everything under way: the link has ended.
  void drop();

  std::uint64_t consumed() const { return ring_.consumed(); }
  std::uint64_t read_count() const { return read_; }
  /// Grows with everything that has come.
  std::uint64_t had_count() const { return consumed() + read_; }
  const RailMemory& memory() const { return *memory_; }

 private:
  /// A lent payload on its way here.
  struct Pull {
    FrameHeader header;
    Source source;
    std::uint64_t payload_sum = 0;
    Placement placement;
    Registration* held = nullptr;  ///< of the target
    std::byte* slot = nullptr;     ///< staging: for reductions, or for what cannot be registered
    bool needs_reading = false;
    QueuePair* reader = nullptr;  ///< null: not begun
    std::size_t staged = 0;       ///< bytes of it asked for
    std::uint64_t read_id = 0;    ///< of the last request
  };
  bool may_begin(const FrameHeader& header) const;
  Result<bool> take_records(FrameSink& sink);
  Status take_whole(const ReceiveRing::Record& record, FrameSink& sink);
  bool begin_pull(const ReceiveRing::Record& record, FrameSink& sink);
  void choose_memory(Pull* pull);
  bool stage_reads(QueuePairs& queue_pairs);
  bool stage_read(Pull* pull);
  Result<bool> finish_pulls(FrameSink& sink);
  Status check_payload(const FrameHeader& header, const std::byte* payload,
                       std::uint64_t sent) const;
  void release(Pull* pull);

  const Rank peer_;
  const LinkResources& shared_;
  std::unique_ptr<RailMemory> memory_;
  ReceiveRing ring_;
  FixedQueue<Pull, kLentMax> pulls_;
  std::uint64_t read_ = 0;
  std::uint64_t read_told_ = 0;
  std::uint64_t consumed_told_ = 0;
  FixedQueue<std::uint64_t, kWritesMax> pieces_;  ///< ends of those not consumed yet
  int pieces_untold_ = 0;
};

}  // namespace unisono::verbs
