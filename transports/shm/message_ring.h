// A ring of 64-byte lines in shared memory, with one writer and one reader, in two processes or two
// threads. RingSender and RingReceiver are the two ends; each belongs to its
// rank's engine, one thread at a time.
//
// A record is a header line and the payload in the lines after it. The first word of a header line
// is zero until the record is complete, so the reader sees a record with one acquire load, and the
// writer, which cleared the word of the line that follows before it published, needs no shared
// counter. A frame above the piece size is a record and continuation records, so it streams through
// a ring smaller than itself. The one counter of the transfer, lines consumed, is written by the
// reader once per eighth of the ring and read by the writer when the ring looks full. The first
// word also says how the payload was stored (store_trials.h), or in which buffer it came instead
// (passed_buffers.h).
//
// A lent frame (loan.h) is a record of two lines and no payload. A word in the second line decides
// once what becomes of the frame. The reader copies the frame from where it lies, a step at a time,
// and then writes "taken", or it writes "refused"; the writer writes "refused" when it wants its
// memory back. A refused frame follows in continuation records from its first byte, so nothing is
// lost, and what the reader has copied by then is written over. Within one process the writer's
// memory could be unmapped while it is copied: there the reader writes "reading" before a step and
// "open" after it, and the writer waits until that one step is copied.
//
// Everything read here may have been written by a hostile process of the same user: it is copied,
// then checked, then used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "transports/shm/cold_memory.h"
#include "transports/shm/loan.h"
#include "transports/shm/loan_trials.h"
#include "transports/shm/passed_buffers.h"
#include "transports/shm/segment.h"
#include "transports/shm/shared_segment.h"
#include "transports/shm/store_trials.h"
#include "transports/transport.h"

namespace unisono::shm {

/// Before the lines: one line with the reader's counter and its times of messages, one with its
/// `left` word and its times of pieces.
inline constexpr std::size_t kRingControlBytes = 2 * kLineBytes;
inline constexpr std::size_t kRingBytesMin = 4096;
inline constexpr std::size_t kRingBytesMax = std::size_t{1} << 30;

/// The piece of a frame that is published at once: the reader copies one out while the writer
/// writes the next. A quarter of the frame within these bounds; smaller rings use smaller pieces.
inline constexpr std::size_t kPieceBytesMin = 16 * 1024;
static_assert(kPieceBytesMin >= kSettlingPieceBytes);
inline constexpr std::size_t kPieceBytesMax = 64 * 1024;

/// Pieces of this size or more go in a buffer, if there is one and the message is one frame: longer
/// ones fill the ring many times over, and buffers have left the caches when the next one comes.
inline constexpr std::size_t kPassedBytesMin = 512;

/// How a rank left its end of a ring.
enum class RingLeft : std::uint32_t {
  kNot = 0,
  kGoodbye = 1,     ///< everything posted had been written
  kUnfinished = 2,  ///< closed, but its deadline passed with frames unwritten
  kAbandoned = 3,   ///< the transport was destroyed without close()
};

/// The ring's memory, measured out. Both ends compute the same from the same memory.
struct RingGeometry {
  std::byte* lines = nullptr;
  std::uint64_t* consumed = nullptr;
  MessageTimes* message_times = nullptr;
  std::uint32_t* left = nullptr;
  ReaderTimes* times = nullptr;
  std::uint32_t line_count = 0;
  std::uint32_t piece_bytes_max = 0;
  std::byte* buffers = nullptr;  ///< behind the lines
  std::uint32_t buffer_bytes = 0;
  int buffer_count = 0;
  TrialMemory* trials = nullptr;  ///< RingMemory::trials

  /// kInvalidArgument when the memory is too small, too large or not aligned to a line.
  static Result<RingGeometry> of(RingMemory memory);
  std::byte* line(std::uint32_t index) const { return lines + index * kLineBytes; }
  /// Of a frame with a payload of `bytes`: whole lines.
  std::size_t piece_bytes(std::size_t bytes) const {
    const std::size_t quarter = round_up((bytes + 3) / 4, kPageBytes);
    return std::min<std::size_t>(std::clamp(quarter, kPieceBytesMin, kPieceBytesMax),
                                 piece_bytes_max);
  }
  /// How much of a payload of `bytes`, behind the header line at `index`, lies before the end; the
  /// rest is at line 0.
  std::size_t bytes_before_end(std::uint32_t index, std::size_t bytes) const {
    // The header may be the last line: then nothing does.
    return std::min(bytes, (line_count - index - 1) * kLineBytes);
  }
  /// Of a line that may lie beyond the last one: where the ring goes on.
  std::uint32_t wrap(std::uint32_t index) const {
    return index < line_count ? index : index - line_count;
  }
};

class RingSender {
 public:
  enum class Pushed : std::uint8_t {
    kWhole,    ///< the frame is in the ring
    kPart,     ///< the ring is full, or the payload was lent; it is referenced until kWhole
    kNothing,  ///< the ring is full; nothing was taken
    kBroken,   ///< what the reader wrote makes no sense: the peer is not to be talked to
  };

  /// `buffers` is shared with the receiver that this rank has of the same peer; null: none.
  explicit RingSender(const RingGeometry& geometry, PassedBuffers* buffers = nullptr)
      : ring_(geometry),
        buffers_(buffers),
        trials_(geometry.times, geometry.trials),
        loan_trials_(geometry.message_times, geometry.trials) {}

  /// Starts a frame. Not while another is partly written.
  Pushed push(const FrameHeader& header, std::span<const std::byte> payload);
  /// Starts a frame like push(), but the reader reads the payload in place. kPart if there is room.
  Pushed lend(const FrameHeader& header, std::span<const std::byte> payload,
              const MemoryHandle& lent);
  /// Until the reader has refused a loan: it would refuse the next one, too.
  bool may_lend() const { return may_lend_; }
  /// The same of private memory, which may not be readable.
  bool may_lend_private() const { return may_lend_private_; }
  /// Whether a frame in private memory is better lent. The same for all frames of a message.
  bool lends_private(const FrameHeader& header, const ReceivedMessages* followed) {
    return loan_trials_.lends(header, followed);
  }
  /// Goes on with the frame of which push() or lend() took a part.
  Pushed resume();
  bool writing() const { return rest_bytes_ > 0; }
  /// Copies the rest of the frame that is partly written, so that its payload goes back to its
  /// owner. False: there is no memory for that. The payload is its owner's all the same, and
  /// nothing can follow what was written.
  bool detach();
  /// Afterwards nobody reads what was lent. Waits for a thread of this process that is reading.
  void withdraw();

  /// The last record; there is always room for it. Nothing is pushed afterwards.
  void leave(RingLeft how);
  /// How the reader left, or kNot. One load of a line that changes in trials and once more.
  RingLeft reader_left() const;

 private:
  bool has_room(std::uint32_t lines);
  bool loan_ended();
  void end_loan(bool taken);
  struct Written {
    std::uint32_t word;   // what the record's first word says of it
    std::uint32_t lines;  // of the record
  };
  Written write_piece(std::span<const std::byte> payload);
  PieceStores write_to_ring(std::span<const std::byte> payload);
  void write_lines(std::span<const std::byte> payload, bool streamed);
  void publish(std::uint32_t word, std::uint32_t lines);

  RingGeometry ring_;
  PassedBuffers* buffers_;
  StoreTrials trials_;
  LoanTrials loan_trials_;
  std::uint32_t position_ = 0;       // index of the next header line
  std::uint32_t cleared_ = 0;        // and of the line behind it, once a record was published
  std::uint64_t produced_ = 0;       // lines written so far
  std::uint64_t consumed_seen_ = 0;  // the reader's counter when last looked at
  const std::byte* rest_ = nullptr;  // of the frame partly written
  std::size_t rest_bytes_ = 0;
  std::size_t piece_bytes_ = 0;
  std::vector<std::byte> detached_;  // the copy that rest_ then points into
  std::byte* loan_ = nullptr;        // the line of a loan that nobody has decided on
  MemoryPath loan_path_ = MemoryPath::kNone;
  bool may_lend_ = true;
  bool may_lend_private_ = true;
  bool passes_ = false;  // this frame's pieces may go in buffers
  bool broken_ = false;
};

class RingReceiver {
 public:
  enum class Took : std::uint8_t {
    kNothing,
    kRecord,
    kStep,  ///< of a lent frame; the rest is for later calls
    kEnd,   ///< the writer left or broke the protocol: end() says which; nothing follows
  };

  /// Without `loans` frames that are lent are refused. `buffers` as the sender's.
  RingReceiver(const RingGeometry& geometry, Rank peer, const Loans* loans = nullptr,
               PassedBuffers* buffers = nullptr)
      : ring_(geometry),
        peer_(peer),
        loans_(loans),
        buffers_(buffers),
        timer_(geometry.message_times),
        store_timer_(geometry.times) {}

  /// Hands one record to the sink, if there is one.
  Took take(FrameSink& sink);
  /// Whether the next record is a lent frame that take() begins to copy.
  bool is_lent_next() const;
  /// See Endpoint::take_awaited().
  TakeResult take_awaited(AwaitedMessage& awaited);
  /// This rank asks for a message by a kGrant.
  void grant(const FrameHeader& header) { timer_.grant(header); }
  const ReceivedMessages& received() const { return timer_.received(); }
  /// A frame to the same peer is under way, or has been sent: times of messages count it.
  void begin_sending(const FrameHeader& header) { timer_.begin_sending(header); }
  void end_sending() { timer_.end_sending(); }
  /// After kEnd: ok for a goodbye after all frames.
  const Status& end() const { return end_; }
  /// Tells the writer that nothing will be read any more.
  void leave(RingLeft how);
  /// What goes on arriving into this memory is discarded.
  void abandon(const std::byte* begin, std::size_t bytes);
  /// Whether a frame has arrived in part.
  bool reading() const { return rest_bytes_ > 0 || loan_ != nullptr; }

 private:
  Took take_first(std::uint32_t word, FrameSink& sink);
  bool stores_past_caches();
  bool look_at_loan();
  Took take_loan(FrameSink& sink);
  std::uint32_t read_loan();
  Took take_continuation(std::uint32_t word, FrameSink& sink);
  Took take_goodbye(const FrameHeader& header);
  Took break_off(const std::string& what);
  bool is_possible(std::uint32_t word, std::size_t bytes) const;
  std::size_t piece_bytes() const { return ring_.piece_bytes(header_.payload_bytes); }
  void take_payload(std::size_t bytes, std::uint32_t word, FrameSink& sink);
  void copy_out(std::size_t bytes, FrameSink& sink);
  void hand_over(std::span<const std::byte> part, FrameSink& sink);
  void end_frame(FrameSink& sink);
  void advance(std::uint32_t lines);

  RingGeometry ring_;
  Rank peer_;
  const Loans* loans_;
  PassedBuffers* buffers_;
  std::uint32_t position_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t consumed_told_ = 0;
  MessageTimer timer_;
  StoreTimer store_timer_;
  FrameHeader header_;   // of the frame being read
  Placement placement_;  // and where it goes
  ColdMemory cold_memory_;
  bool streams_ = false;    // past the caches, which that place has left
  std::size_t offset_ = 0;  // of its next byte
  std::size_t rest_bytes_ = 0;
  std::byte* loan_ = nullptr;  // the line of one that is being read
  MemoryHandle lent_;
  Status end_;
};

}  // namespace unisono::shm
