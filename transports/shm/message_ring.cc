// The two ends of a ring. See message_ring.h for the record format and the thread rule.
#include "transports/shm/message_ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>

#include "compute/compute.h"

namespace unisono::shm {
namespace {

// The first word of a header line: payload bytes of the record in the low bits, and these flags.
constexpr std::uint32_t kPublished = 1u << 31;
constexpr std::uint32_t kContinuation = 1u << 30;
constexpr std::uint32_t kInline = 1u << 29;
constexpr std::uint32_t kLent = 1u << 28;
constexpr std::uint32_t kPassed = 1u << 24;  // the payload is in the buffer of that number
constexpr int kBufferShift = 20;
constexpr std::uint32_t kBufferMask = 15u << kBufferShift;
constexpr std::uint32_t kBytesMask = (1u << 20) - 1;
static_assert((PieceStores::kAll & (kPublished | kContinuation | kInline | kLent | kPassed |
                                    kBufferMask | kBytesMask)) == 0);
static_assert(kFramePayloadMax <= kBytesMask && 2 * kRingBuffersMax <= 16);
// How a piece was written, which says nothing about what it is.
constexpr std::uint32_t kPieceMask = PieceStores::kAll | kPassed | kBufferMask;

int buffer_of(std::uint32_t word) { return static_cast<int>((word & kBufferMask) >> kBufferShift); }

// A record of this kind ends the ring; its `index` is a RingLeft.
constexpr auto kGoodbyeKind = static_cast<FrameKind>(0xff);

// A whole small message says nothing in `offset` and `total_bytes` that its length does not say, so
// its payload travels in their place: one cache line goes between the cores instead of two.
constexpr std::size_t kInlineAt = offsetof(FrameHeader, offset);
constexpr std::size_t kInlineBytesMax = 16;
static_assert(offsetof(FrameHeader, total_bytes) == kInlineAt + 8);
static_assert(offsetof(FrameHeader, record) == kInlineAt + kInlineBytesMax);
static_assert(offsetof(FrameHeader, payload_bytes) == 0 && sizeof(FrameHeader) == kLineBytes);

// The second line of a lent frame. The word is the first of the line.
struct LoanLine {
  std::uint32_t word;
  MemoryHandle lent;
};

// The word: what is decided about the frame.
constexpr std::uint32_t kOpen = 0;
constexpr std::uint32_t kTaken = 1;
constexpr std::uint32_t kRefused = 2;
constexpr std::uint32_t kReading =
    3;  // by a thread of the lender's process, which will be done soon

// What of a lent frame is copied at once: then the rank looks after what it sends itself.
constexpr std::size_t kLoanStepBytes = std::size_t{256} << 10;

std::atomic_ref<std::uint32_t> first_word(std::byte* line) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(line));
}

std::uint32_t lines_for(std::size_t bytes) {
  return static_cast<std::uint32_t>((bytes + kLineBytes - 1) / kLineBytes);
}

bool fits_inline(const FrameHeader& header) {
  return header.payload_bytes <= kInlineBytesMax && header.offset == 0 &&
         header.total_bytes == header.payload_bytes;
}

void copy_cached(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

// All of the line but its first word, which publish() writes last.
void write_header(std::byte* line, const FrameHeader& header) {
  std::memcpy(line + sizeof(std::uint32_t),
              reinterpret_cast<const std::byte*>(&header) + sizeof(std::uint32_t),
              kLineBytes - sizeof(std::uint32_t));
}

bool is_known(const FrameHeader& header) {
  return header.kind >= FrameKind::kEager && header.kind <= FrameKind::kLeft &&
         header.frame_class >= FrameClass::kCollective &&
         header.frame_class <= FrameClass::kPointToPoint;
}

}  // namespace

Result<RingGeometry> RingGeometry::of(RingMemory memory) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(memory.base) % kLineBytes == 0;
  if (memory.base == nullptr || !aligned || memory.bytes < kRingBytesMin ||
      memory.bytes > kRingBytesMax) {
    return Status(ErrorCode::kInvalidArgument,
                  "a ring of " + std::to_string(memory.bytes) +
                      " bytes is refused: it takes 4 KiB to 1 GiB of memory aligned to 64 bytes");
  }
  RingGeometry geometry;
  geometry.trials = memory.trials;
  geometry.lines = memory.base + kRingControlBytes;
  geometry.consumed = reinterpret_cast<std::uint64_t*>(memory.base);
  static_assert(sizeof(std::uint64_t) + sizeof(MessageTimes) <= kLineBytes);
  geometry.message_times = reinterpret_cast<MessageTimes*>(geometry.consumed + 1);
  geometry.left = reinterpret_cast<std::uint32_t*>(memory.base + kLineBytes);
  static_assert(sizeof(std::uint32_t) + sizeof(ReaderTimes) <= kLineBytes);
  geometry.times = reinterpret_cast<ReaderTimes*>(geometry.left + 1);
  // Buffers take an eighth at most; a small ring has none.
  const std::size_t share = memory.bytes / 8 / kRingBuffersMax / kLineBytes * kLineBytes;
  const std::size_t buffer_bytes = std::clamp(share, kPieceBytesMin, kPieceBytesMax);
  const std::size_t buffers =
      std::min<std::size_t>(memory.bytes / 8 / buffer_bytes, kRingBuffersMax);
  const std::size_t lines = memory.bytes - kRingControlBytes - buffers * buffer_bytes;
  geometry.line_count = static_cast<std::uint32_t>(lines / kLineBytes);
  geometry.buffer_count = static_cast<int>(buffers);
  geometry.buffer_bytes = static_cast<std::uint32_t>(buffer_bytes);
  geometry.buffers = geometry.line(geometry.line_count);
  // At most a quarter of the ring: with an eighth that the reader has not yet told of, the next
  // piece always finds room once the ring is drained.
  const std::size_t quarter = geometry.line_count / 4 * kLineBytes;
  geometry.piece_bytes_max = static_cast<std::uint32_t>(std::min(kPieceBytesMax, quarter));
  return geometry;
}

// The two lines after the record must be free too: they are cleared, and the first may get the
// goodbye.
bool RingSender::has_room(std::uint32_t lines) {
  const std::uint64_t wanted = produced_ + lines + 2;
  if (wanted <= consumed_seen_ + ring_.line_count) return true;
  // Acquire pairs with RingReceiver::advance: the reader has finished with these lines.
  const std::uint64_t consumed =
      std::atomic_ref<std::uint64_t>(*ring_.consumed).load(std::memory_order_acquire);
  if (consumed < consumed_seen_ || consumed > produced_) {
    broken_ = true;
    return false;
  }
  consumed_seen_ = consumed;
  return wanted <= consumed_seen_ + ring_.line_count;
}

RingSender::Written RingSender::write_piece(std::span<const std::byte> payload) {
  const bool fits = payload.size() >= kPassedBytesMin && payload.size() <= ring_.buffer_bytes;
  const int buffer = passes_ && fits ? buffers_->take() : -1;
  if (buffer < 0) return {write_to_ring(payload).bits, 1 + lines_for(payload.size())};
  std::memcpy(buffers_->memory(buffer), payload.data(), payload.size());
  return {kPassed | static_cast<std::uint32_t>(buffer) << kBufferShift, 1};
}

PieceStores RingSender::write_to_ring(std::span<const std::byte> payload) {
  const PieceStores stores = trials_.next(payload.size());
  if (!stores.is_trial()) {
    write_lines(payload, stores.streamed());
    return stores;
  }
  const TimePoint start = Clock::now();
  write_lines(payload, stores.streamed());
  // The reader waits until cached stores, too, have left this core. Time is all that this is about:
  // the record is published by publish().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  trials_.note(stores, payload.size(), Clock::now() - start);
  return stores;
}

void RingSender::write_lines(std::span<const std::byte> payload, bool streamed) {
  if (payload.empty()) return;
  const std::size_t head = ring_.bytes_before_end(position_, payload.size());
  const auto copy = streamed ? compute::copy_streaming : copy_cached;
  copy(ring_.line(position_ + 1), payload.data(), head);
  if (head < payload.size()) copy(ring_.line(0), payload.data() + head, payload.size() - head);
}

// Who waits for the record looks at its header line all the time. Were the line taken away while
// this core waits for another one, it would have to be fetched twice: so the header is written
// last, and the line behind a record of one line was cleared with the record before.
void RingSender::publish(std::uint32_t word, std::uint32_t lines) {
  const std::uint32_t next = ring_.wrap(position_ + lines);
  // The reader reaches this word through the release below only.
  if (next != cleared_) first_word(ring_.line(next)).store(0, std::memory_order_relaxed);
  // Release pairs with the acquire in RingReceiver::take: the whole record is visible with it.
  first_word(ring_.line(position_)).store(kPublished | word, std::memory_order_release);
  position_ = next;
  produced_ += lines;
  cleared_ = ring_.wrap(next + 1);
  // As above: the reader comes here after the next release.
  first_word(ring_.line(cleared_)).store(0, std::memory_order_relaxed);
}

RingSender::Pushed RingSender::push(const FrameHeader& header, std::span<const std::byte> payload) {
  UNISONO_ASSERT(payload.size() <= kFramePayloadMax, "only what is lent may be longer");
  if (fits_inline(header)) {
    if (!has_room(1)) return broken_ ? Pushed::kBroken : Pushed::kNothing;
    std::byte* line = ring_.line(position_);
    write_header(line, header);
    if (!payload.empty()) std::memcpy(line + kInlineAt, payload.data(), payload.size());
    publish(kInline | header.payload_bytes, 1);
    return Pushed::kWhole;
  }
  piece_bytes_ = ring_.piece_bytes(payload.size());
  const std::size_t piece = std::min(payload.size(), piece_bytes_);
  if (!has_room(1 + lines_for(piece))) return broken_ ? Pushed::kBroken : Pushed::kNothing;
  passes_ = buffers_ != nullptr && header.total_bytes <= kFramePayloadMax;
  const Written written = write_piece(payload.first(piece));
  write_header(ring_.line(position_), header);
  publish(header.payload_bytes | written.word, written.lines);
  if (piece == payload.size()) return Pushed::kWhole;
  rest_ = payload.data() + piece;
  rest_bytes_ = payload.size() - piece;
  return resume();
}

RingSender::Pushed RingSender::lend(const FrameHeader& header, std::span<const std::byte> payload,
                                    const MemoryHandle& lent) {
  if (!has_room(2)) return broken_ ? Pushed::kBroken : Pushed::kNothing;
  passes_ = false;  // lent frames are long; a refused one fills the ring
  loan_ = ring_.line(ring_.wrap(position_ + 1));
  const LoanLine line{kOpen, lent};
  std::memcpy(loan_, &line, sizeof line);
  write_header(ring_.line(position_), header);
  loan_path_ = lent.path;
  publish(kLent, 2);
  piece_bytes_ = ring_.piece_bytes(payload.size());
  rest_ = payload.data();
  rest_bytes_ = payload.size();
  return Pushed::kPart;
}

bool RingSender::loan_ended() {
  // Acquire pairs with RingReceiver::read_loan: the reader has finished with the payload.
  const std::uint32_t word = first_word(loan_).load(std::memory_order_acquire);
  if (word == kOpen || word == kReading) return false;
  broken_ = word != kTaken && word != kRefused;
  if (word != kTaken)
    (loan_path_ == MemoryPath::kSingleCopy ? may_lend_private_ : may_lend_) = false;
  end_loan(word == kTaken);
  return true;
}

void RingSender::end_loan(bool taken) {
  loan_ = nullptr;
  if (taken) rest_bytes_ = 0;
}

void RingSender::withdraw() {
  if (loan_ == nullptr) return;
  std::uint32_t word = kOpen;
  // Acquire and release as in loan_ended() and for the reader, which then does not trust its copy.
  while (!first_word(loan_).compare_exchange_strong(word, kRefused, std::memory_order_acq_rel) &&
         word == kReading && loan_path_ == MemoryPath::kPointer) {
    std::this_thread::yield();
    word = kOpen;
  }
  end_loan(word == kTaken);
}

RingSender::Pushed RingSender::resume() {
  if (loan_ != nullptr && !loan_ended()) return Pushed::kPart;
  if (broken_) return Pushed::kBroken;
  while (rest_bytes_ > 0) {
    const std::size_t piece = std::min(rest_bytes_, piece_bytes_);
    if (!has_room(1 + lines_for(piece))) return broken_ ? Pushed::kBroken : Pushed::kPart;
    const Written written = write_piece({rest_, piece});
    publish(kContinuation | static_cast<std::uint32_t>(piece) | written.word, written.lines);
    rest_ += piece;
    rest_bytes_ -= piece;
  }
  if (!detached_.empty()) detached_ = {};  // a copy of a long frame
  return Pushed::kWhole;
}

bool RingSender::detach() {
  withdraw();
  try {
    detached_.assign(rest_, rest_ + rest_bytes_);
  } catch (const std::bad_alloc&) {
    rest_bytes_ = 0;
    return false;
  }
  rest_ = detached_.data();
  return true;
}

void RingSender::leave(RingLeft how) {
  FrameHeader header;
  header.kind = kGoodbyeKind;
  header.index = static_cast<std::uint32_t>(how);
  std::byte* line = ring_.line(position_);
  write_header(line, header);
  // Release pairs with the acquire in RingReceiver::take. No zero word follows: nothing else does.
  first_word(line).store(kPublished, std::memory_order_release);
}

RingLeft RingSender::reader_left() const {
  // Acquire pairs with RingReceiver::leave: what that rank had sent before is visible now.
  const std::uint32_t left =
      std::atomic_ref<std::uint32_t>(*ring_.left).load(std::memory_order_acquire);
  if (left == 0) return RingLeft::kNot;
  return left == static_cast<std::uint32_t>(RingLeft::kGoodbye) ? RingLeft::kGoodbye
                                                                : RingLeft::kAbandoned;
}

RingReceiver::Took RingReceiver::take(FrameSink& sink) {
  if (loan_ != nullptr) return take_loan(sink);
  // Acquire pairs with RingSender::publish.
  const std::uint32_t word = first_word(ring_.line(position_)).load(std::memory_order_acquire);
  if ((word & kPublished) == 0) return Took::kNothing;
  return rest_bytes_ == 0 ? take_first(word, sink) : take_continuation(word, sink);
}

bool RingReceiver::is_lent_next() const {
  if (rest_bytes_ > 0 || loan_ != nullptr) return false;
  const std::uint32_t word = first_word(ring_.line(position_)).load(std::memory_order_relaxed);
  return (word & kPublished) != 0 && (word & kLent) != 0;
}

// A word with other flags, or of another length, is that of a record which take() has to explain.
TakeResult RingReceiver::take_awaited(AwaitedMessage& awaited) {
  // Acquire pairs with RingSender::publish.
  const std::uint32_t word = first_word(ring_.line(position_)).load(std::memory_order_acquire);
  if ((word & kPublished) == 0) return TakeResult::kNothing;
  const std::size_t bytes = awaited.room.size();
  const bool is_inline = bytes <= kInlineBytesMax;
  const bool is_passed = (word & kPassed) != 0;
  const std::uint32_t expected = kPublished | (is_inline ? kInline : 0) | bytes;
  if (reading() || bytes > ring_.piece_bytes(bytes) ||
      (is_passed ? word & ~(kPassed | kBufferMask) : word) != expected ||
      !is_possible(word, bytes)) {
    return TakeResult::kOther;
  }
  FrameHeader header;
  std::memcpy(&header, ring_.line(position_), sizeof header);
  const bool is_whole = is_inline || header.total_bytes == bytes;
  if (header.kind != FrameKind::kEager || header.frame_class != FrameClass::kPointToPoint ||
      header.communicator != awaited.communicator || header.index != awaited.index || !is_whole) {
    return TakeResult::kOther;
  }
  if (is_inline) {
    const std::byte* const payload = reinterpret_cast<const std::byte*>(&header) + kInlineAt;
    if (bytes > 0) std::memcpy(awaited.room.data(), payload, bytes);
    advance(1);
    return TakeResult::kTaken;
  }
  awaited.credit = header.offset;
  if (is_passed) {
    std::memcpy(awaited.room.data(), buffers_->memory(buffer_of(word)), bytes);
    buffers_->came(buffer_of(word));
    advance(1);
    return TakeResult::kTaken;
  }
  const std::size_t head = ring_.bytes_before_end(position_, bytes);
  std::memcpy(awaited.room.data(), ring_.line(position_ + 1), head);
  std::memcpy(awaited.room.data() + head, ring_.line(0), bytes - head);
  advance(1 + lines_for(bytes));
  return TakeResult::kTaken;
}

// What the first word of a piece of `bytes` says of a buffer.
bool RingReceiver::is_possible(std::uint32_t word, std::size_t bytes) const {
  if ((word & kPassed) == 0) return (word & kBufferMask) == 0;
  return (word & (kInline | kLent)) == 0 && buffers_ != nullptr && bytes <= ring_.buffer_bytes &&
         buffers_->is_theirs(buffer_of(word));
}

RingReceiver::Took RingReceiver::take_first(std::uint32_t word, FrameSink& sink) {
  const std::byte* line = ring_.line(position_);
  std::memcpy(reinterpret_cast<std::byte*>(&header_) + sizeof word, line + sizeof word,
              kLineBytes - sizeof word);
  header_.payload_bytes = word & kBytesMask;
  if (header_.kind == kGoodbyeKind) return take_goodbye(header_);
  const std::uint32_t flags = word & ~(kPublished | kPieceMask | kBytesMask);
  const bool is_inline = flags == kInline && header_.payload_bytes <= kInlineBytesMax;
  const bool is_lent = flags == kLent && header_.payload_bytes == 0 && look_at_loan();
  const std::size_t piece = std::min(std::size_t{header_.payload_bytes}, piece_bytes());
  if ((flags != 0 && !is_inline && !is_lent) || !is_possible(word, piece) || !is_known(header_) ||
      (!is_lent && header_.payload_bytes > kFramePayloadMax)) {
    return break_off("a frame of kind " + std::to_string(static_cast<int>(header_.kind)) +
                     ", class " + std::to_string(static_cast<int>(header_.frame_class)) + " and " +
                     std::to_string(header_.payload_bytes) + " payload bytes");
  }
  offset_ = 0;
  if (is_lent) {
    if (lent_.path == MemoryPath::kSingleCopy) timer_.begin(header_, true);
    loan_ = ring_.line(ring_.wrap(position_ + 1));
    placement_ = sink.place(peer_, header_);
    return take_loan(sink);
  }
  if (is_inline) {
    alignas(16) std::byte payload[kInlineBytesMax];
    std::memcpy(payload, reinterpret_cast<const std::byte*>(&header_) + kInlineAt, sizeof payload);
    header_.offset = 0;
    header_.total_bytes = header_.payload_bytes;
    streams_ = false;
    // The line has been copied: the sink may take its time.
    advance(1);
    placement_ = sink.place(peer_, header_);
    hand_over({payload, header_.payload_bytes}, sink);
    sink.received(peer_, header_);
    return Took::kRecord;
  }
  timer_.begin(header_, false);
  placement_ = sink.place(peer_, header_);
  // The first frame tells for those that follow.
  if (header_.kind == FrameKind::kEager || header_.offset == 0) streams_ = stores_past_caches();
  take_payload(piece, word, sink);
  return Took::kRecord;
}

bool RingReceiver::stores_past_caches() {
  return placement_.kind == Placement::Kind::kInto && header_.payload_bytes >= kColdBytesMin &&
         cold_memory_.has({placement_.target, header_.payload_bytes});
}

// What is lent says itself how long it is. False where that cannot be.
bool RingReceiver::look_at_loan() {
  const std::byte* const line = ring_.line(ring_.wrap(position_ + 1));
  std::memcpy(&lent_, line + offsetof(LoanLine, lent), sizeof lent_);
  if (lent_.bytes == 0 || lent_.bytes > kLentPayloadMax) return false;
  header_.payload_bytes = static_cast<std::uint32_t>(lent_.bytes);
  return true;
}

RingReceiver::Took RingReceiver::take_loan(FrameSink& sink) {
  const std::uint32_t word = read_loan();
  if (word == kOpen) return Took::kStep;
  loan_ = nullptr;
  offset_ = 0;  // what was refused comes from its first byte
  rest_bytes_ = word == kTaken ? 0 : header_.payload_bytes;
  advance(2);
  if (rest_bytes_ == 0) end_frame(sink);
  return Took::kRecord;
}

// Reads a step into place. Returns kOpen while there is more, kTaken when the payload is where it
// belongs and the lender was told so, else kRefused.
std::uint32_t RingReceiver::read_loan() {
  const auto decide = [&](std::uint32_t from, std::uint32_t to) {
    // Release pairs with loan_ended() and withdraw(), acquire with withdraw().
    const bool decided =
        first_word(loan_).compare_exchange_strong(from, to, std::memory_order_acq_rel);
    return decided ? to : kRefused;
  };
  if (placement_.kind == Placement::Kind::kDiscard) return decide(kOpen, kTaken);
  if (placement_.kind == Placement::Kind::kDeliver || loans_ == nullptr) {
    return decide(kOpen, kRefused);
  }
  // Memory of this process may be gone when the lender has it back: it waits while this reads.
  const std::uint32_t before = lent_.path == MemoryPath::kPointer ? kReading : kOpen;
  // The line stays with its lender, who looks at it, until there is something to tell.
  const bool is_open = before == kOpen ? first_word(loan_).load(std::memory_order_acquire) == kOpen
                                       : decide(kOpen, kReading) == kReading;
  if (!is_open) return kRefused;
  const std::size_t bytes = std::min(kLoanStepBytes, header_.payload_bytes - offset_);
  MemoryHandle step = lent_;
  step.bytes = bytes;
  step.address += offset_;
  if (!loans_->collect(peer_, step, {placement_.target + offset_, bytes})) {
    return decide(before, kRefused);
  }
  offset_ += bytes;
  if (offset_ == header_.payload_bytes) return decide(before, kTaken);
  return before == kOpen ? kOpen : decide(kReading, kOpen);
}

RingReceiver::Took RingReceiver::take_continuation(std::uint32_t word, FrameSink& sink) {
  if ((word & kContinuation) == 0) {
    FrameHeader header;
    std::memcpy(&header, ring_.line(position_), sizeof header);
    if (header.kind == kGoodbyeKind) return take_goodbye(header);
  }
  const std::size_t piece = std::min(rest_bytes_, piece_bytes());
  if ((word & ~(kPublished | kPieceMask)) != (kContinuation | piece) || !is_possible(word, piece)) {
    return break_off("a piece with the first word " + std::to_string(word) + " where " +
                     std::to_string(piece) + " bytes of a frame were to follow");
  }
  take_payload(piece, word, sink);
  return Took::kRecord;
}

RingReceiver::Took RingReceiver::take_goodbye(const FrameHeader& header) {
  const std::string rank = "rank " + std::to_string(peer_);
  switch (static_cast<RingLeft>(header.index)) {
    case RingLeft::kGoodbye:
      if (rest_bytes_ > 0) return break_off("a goodbye in the middle of a frame");
      return Took::kEnd;
    case RingLeft::kUnfinished:
      end_ = Status(ErrorCode::kRankLeft,
                    rank + " closed with frames unsent: its deadline passed before this rank read",
                    peer_);
      return Took::kEnd;
    case RingLeft::kAbandoned:
      end_ = Status(ErrorCode::kRankFailed,
                    rank + " ended without goodbye on its shared-memory ring", peer_);
      return Took::kEnd;
    case RingLeft::kNot:
      break;
  }
  return break_off("a goodbye of kind " + std::to_string(header.index));
}

RingReceiver::Took RingReceiver::break_off(const std::string& what) {
  end_ = Status(ErrorCode::kProtocol,
                "rank " + std::to_string(peer_) + " wrote " + what +
                    " to its shared-memory ring, which no correct peer writes",
                peer_);
  return Took::kEnd;
}

void RingReceiver::take_payload(std::size_t bytes, std::uint32_t word, FrameSink& sink) {
  const PieceStores stores{word & PieceStores::kAll};
  const bool is_passed = (word & kPassed) != 0;
  rest_bytes_ = header_.payload_bytes - offset_;
  if (is_passed) {
    hand_over({buffers_->memory(buffer_of(word)), bytes}, sink);
    buffers_->came(buffer_of(word));
  } else if (stores.is_trial()) {
    const bool is_copied = placement_.kind != Placement::Kind::kDiscard;
    const TimePoint start = Clock::now();
    copy_out(bytes, sink);
    const Duration took = is_copied ? Clock::now() - start : Duration::zero();
    store_timer_.note(stores, bytes, took);
  } else {
    copy_out(bytes, sink);
  }
  rest_bytes_ -= bytes;
  advance(is_passed ? 1 : 1 + lines_for(bytes));
  if (rest_bytes_ == 0) end_frame(sink);
}

void RingReceiver::end_frame(FrameSink& sink) {
  timer_.end(header_);
  sink.received(peer_, header_);
}

void RingReceiver::copy_out(std::size_t bytes, FrameSink& sink) {
  const std::size_t head = ring_.bytes_before_end(position_, bytes);
  hand_over({ring_.line(position_ + 1), head}, sink);
  hand_over({ring_.line(0), bytes - head}, sink);
}

void RingReceiver::hand_over(std::span<const std::byte> part, FrameSink& sink) {
  if (part.empty()) return;
  switch (placement_.kind) {
    case Placement::Kind::kInto:
      UNISONO_ASSERT(placement_.target != nullptr, "kInto needs a target");
      (streams_ ? compute::copy_streaming : copy_cached)(placement_.target + offset_, part.data(),
                                                         part.size());
      break;
    case Placement::Kind::kDeliver:
      sink.deliver(peer_, header_, offset_, part);
      break;
    case Placement::Kind::kDiscard:
      break;
  }
  offset_ += part.size();
}

void RingReceiver::advance(std::uint32_t lines) {
  position_ = ring_.wrap(position_ + lines);
  consumed_ += lines;
  if (consumed_ - consumed_told_ < ring_.line_count / 8) return;
  consumed_told_ = consumed_;
  // Release pairs with RingSender::has_room: these lines have been read.
  std::atomic_ref<std::uint64_t>(*ring_.consumed).store(consumed_, std::memory_order_release);
}

void RingReceiver::abandon(const std::byte* begin, std::size_t bytes) {
  if (!reading() || placement_.kind != Placement::Kind::kInto) return;
  const bool inside =
      !std::less<>()(placement_.target, begin) && std::less<>()(placement_.target, begin + bytes);
  if (inside) placement_ = {};
}

void RingReceiver::leave(RingLeft how) {
  // Release pairs with RingSender::reader_left: the goodbye was written before.
  std::atomic_ref<std::uint32_t>(*ring_.left)
      .store(static_cast<std::uint32_t>(how), std::memory_order_release);
}

}  // namespace unisono::shm
