// Whether messages in private memory are lent, for one copy by the kernel, or go through the ring,
// for two through the caches: which is faster depends on the processor, on where the two ranks run
// and on the size. So, once twice the largest ring's bytes of a size have gone through the ring,
// messages go both ways, in kRows rows of kRowTimes, and the rest as was faster. Where neither way
// is far behind, both are tried again in rows of kLongRowTimes some messages later, because one
// copy finds more and more in a large cache the longer messages go that way. kMessagesUntilNext
// later all is tried again. Where an earlier job has left what it learned (trial_memory.h) they
// begin with that, and try after a quarter of those. In between some messages' times are compared
// with those of the trials, after kMessagesUntilCheck, and then ever more (way_checks.h).
//
// The reader times every message of such a size, from its grant, or the end of the message before,
// to its last byte, or until a message of such a size that it sends itself is sent, if that is
// before the next one comes: of two that pass each other one may be quick at the other's cost. It
// tells the writer in the ring's first control line what the last one took. The writer knows which
// way it went. A way's time is the median of a row, in its better row. The first messages of a row
// find what the other way has left in the caches and do not count.
//
// Of two messages that pass each other one through the ring and one lent is worse than either for
// both. So of two ranks that exchange messages of one size the one of the lower number decides, and
// the other sends as it receives.
//
// Thread rule: each end belongs to its side of the ring.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/trial_facts.h"
#include "transports/frame.h"
#include "transports/shm/segment.h"
#include "transports/shm/trial_memory.h"
#include "transports/shm/way_checks.h"

namespace unisono::shm {

/// Of kMessageSizes; negative where it is never tried.
inline int size_of_message(std::uint64_t bytes) {
  const int size = static_cast<int>(std::bit_width(bytes / kTriedMessageMin)) - 1;
  return std::min(size, kMessageSizes - 1);
}

/// Times in a row, and rows: through the ring and lent in turn.
inline constexpr std::uint32_t kRowTimes = 4;
inline constexpr std::uint32_t kRows = 4;
/// The row that is tried of each way once more, so many messages later; its first times do not
/// count.
inline constexpr std::uint32_t kLongRowTimes = 12;
inline constexpr std::uint32_t kCountedOfLongRow = 5;
inline constexpr std::uint32_t kMessagesUntilLong = 50;
/// Messages of a size before the first row. While they go around the largest ring, twice, both
/// ranks meet its pages, which can take ten times as long as to copy what is in them.
constexpr std::uint32_t messages_until_settled(std::size_t size) {
  return std::max(
      1u, static_cast<std::uint32_t>(2 * kSegmentRingBytesMax / (kTriedMessageMin << size)));
}
/// Messages of a row after which its reader tells too rarely to go on.
inline constexpr std::uint32_t kRowMessagesMax = 100;
/// Of one size, until it is tried again.
inline constexpr std::uint32_t kMessagesUntilNext = 2'000;
/// A ring whose pieces are tried again (store_trials.h) has decided on them by then.
inline constexpr std::uint32_t kMessagesUntilCheck = 64;
/// Messages of a size differ by less.
inline constexpr std::uint32_t kMessagesChangedPercent = 200;

/// What the reader tells, word by word: for each size the number of the last message in the upper
/// half and its time in ns for a MiB in the lower one.
struct MessageTimes {
  std::uint64_t of_size[kMessageSizes];
};

/// How messages of each size came.
struct ReceivedMessages {
  struct OfSize {
    std::uint32_t count = 0;
    bool last_was_lent = false;
  };
  std::array<OfSize, kMessageSizes> of_size;
};
/// So many messages are sent as one was received that came before them; then this rank decides.
inline constexpr std::uint32_t kFollowingMessages = 4;

/// The writer's end.
class LoanTrials {
 public:
  /// `memory`: where they begin, and what they decide is noted; null: nothing is known or kept.
  explicit LoanTrials(MessageTimes* told, TrialMemory* memory = nullptr);

  /// Whether the message that this kData frame is of is to be lent: the same for all its frames,
  /// however often it is asked. `followed`: what came from the other rank, where that one decides;
  /// else null.
  bool lends(const FrameHeader& header, const ReceivedMessages* followed);

 private:
  struct State {
    std::uint32_t until_next = 0;  // messages before the next trial
    bool decided = false;          // to lend
    bool knows_long_rows = false;  // from these, or of an earlier job
    std::uint32_t known = 0;       // what messages took as it was decided, ns for a MiB; or 0
    std::uint32_t until_check = kMessagesUntilCheck;
    WayChecks checks{kMessagesUntilCheck, kMessagesUntilNext, kMessagesChangedPercent};
    // The row that runs, or the check: all messages from `first` on go its way.
    std::uint32_t row = 0;
    std::uint32_t messages = 0;
    std::uint32_t first = 0;
    std::uint32_t told = 0;  // number of the last message whose time is known
    std::uint32_t times_known = 0;
    std::array<std::uint32_t, kLongRowTimes> times{};  // ns for a MiB
    std::array<std::uint32_t, 2> least{};              // of the rows: through the ring, lent
    std::size_t way() const { return decided ? 1 : 0; }
    std::uint32_t row_times() const { return row < kRows ? kRowTimes : kLongRowTimes; }
    std::uint32_t received = 0;                // of those that are followed, when last seen
    std::uint32_t alone = kFollowingMessages;  // messages since
  };
  static bool follows(State& state, const ReceivedMessages::OfSize& received);
  bool next(State& state, std::uint32_t number) const;
  bool holds(State& state, std::uint32_t number) const;
  bool has_changed(State& state, std::uint32_t number) const;
  void note(State& state) const;
  void end_row(State& state) const;
  static void judge_row(State& state);
  bool decide(State& state) const;
  std::size_t size_of(const State& state) const {
    return static_cast<std::size_t>(&state - states_.data());
  }

  MessageTimes* told_;
  TrialMemory* memory_;
  FrameHeader last_;  // of the message that was asked for last
  bool last_is_lent_ = false;
  std::array<State, kMessageSizes> states_;
};

/// The reader's end.
class MessageTimer {
 public:
  explicit MessageTimer(MessageTimes* told) : told_(told) {}

  /// The reader has asked for the message.
  void grant(const FrameHeader& header) {
    if (header.total_bytes < kTriedMessageMin) return;
    grants_[grant_count_++ % grants_.size()] = {header.sequence, Clock::now()};
  }
  /// A frame's first record is here: of private memory, lent or through the ring.
  void begin(const FrameHeader& header, bool is_lent) {
    if (is_tried(header) && header.offset == 0) begin_message(header, is_lent);
  }
  /// A frame has been read.
  void end(const FrameHeader& header) {
    if (!is_tried(header) || !is_last_of(header) || header.sequence != number_) return;
    ended_ = Clock::now();
    held_bytes_ = header.total_bytes;
    if (sending_size_ != size_of_message(held_bytes_)) tell_held(ended_);
  }
  const ReceivedMessages& received() const { return received_; }
  /// A frame of this rank's to the same peer is under way; it is the only one.
  void begin_sending(const FrameHeader& header) {
    ends_message_ = is_tried(header) && is_last_of(header);
    if (is_tried(header)) sending_size_ = size_of_message(header.total_bytes);
  }
  /// It has been sent.
  void end_sending() {
    if (std::exchange(ends_message_, false)) end_sent_message();
  }

 private:
  struct Grant {
    std::uint64_t number = 0;
    TimePoint at{};
  };
  static bool is_tried(const FrameHeader& header) {
    return header.total_bytes >= kTriedMessageMin && header.kind == FrameKind::kData &&
           header.frame_class == FrameClass::kPointToPoint;
  }
  static bool is_last_of(const FrameHeader& header) {
    return header.offset + header.payload_bytes == header.total_bytes;
  }
  void begin_message(const FrameHeader& header, bool is_lent);
  void end_sent_message();
  TimePoint granted_at(std::uint64_t number) const;
  void tell_held(TimePoint end);

  MessageTimes* told_;
  ReceivedMessages received_;
  std::array<Grant, 8> grants_;  // the last ones
  std::uint32_t grant_count_ = 0;
  std::uint64_t number_ = 0;  // of the message that is read
  TimePoint began_{};
  TimePoint ended_{};  // the one before
  static constexpr int kNoSize = -1;
  int sending_size_ = kNoSize;  // of the message to the peer that is under way
  bool ends_message_ = false;   // the frame of it that is
  // Of the message that is here, but not told of yet; 0: none.
  std::uint64_t held_bytes_ = 0;
};

}  // namespace unisono::shm
