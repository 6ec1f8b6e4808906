// The ring that one peer writes into. What lies in it may change while it is looked at: headers are
// copied, checked, then used. Owned by a Link, used by its thread; knows no verbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "transports/frame.h"
#include "transports/verbs/record.h"

namespace unisono::verbs {

class ReceiveRing {
 public:
  /// As SendRing's: the two have one size. Payloads are aligned as far as it is, up to kLine.
  /// `summed_by`: the peer, where records have checksums.
  explicit ReceiveRing(std::span<const std::byte> memory,
                       std::optional<Rank> summed_by = std::nullopt);

  /// An immediate says how far the ring is written. kProtocol where no correct peer says so.
  Status written(std::uint32_t value);

  /// The same in full.
  Status written_up_to(std::uint64_t position);
  /// kProtocol where written_up_to() would say so.
  Status check_position(std::uint64_t position) const;
  /// Whether it would not. Takes no memory.
  bool may_be_written_up_to(std::uint64_t position) const {
    return position >= written_ && position - consumed_ <= memory_.size();
  }

  struct Record {
    FrameHeader header;                    ///< as posted: reserved is 0
    RecordKind kind = RecordKind::kWhole;  ///< whole or lent
    std::span<const std::byte> payload;    ///< whole: in the ring until pop()
    Source source;                         ///< lent
    std::uint64_t payload_sum = 0;         ///< with checksums: what the payload's must be
  };
  /// The next record, skips passed over. False: it is not written to its end yet. kProtocol: no
  /// correct peer writes that. kCorrupted: its head is not as it was written, before anything in it
  /// is believed. Nothing beyond written() is looked at.
  Result<bool> peek(Record* record);
  /// Done with what the last peek() gave; the peer may write there as soon as it knows.
  void pop();

  /// Queue pairs were lost: what is not consumed will be written and announced again. What peek()
  /// gave may still be popped: it is had, and passed over when it comes again.
  void restart() {
    written_ = consumed_;
    checked_at_.reset();
  }

  std::uint64_t consumed() const { return consumed_; }
  std::uint64_t written() const { return written_; }
  std::span<const std::byte> memory() const { return memory_; }

 private:
  /// The head of the next record, which is at `offset`, by its checksum: once, however often a
  /// record that waits its turn is looked at. False: it is not written to its end yet.
  Result<bool> check_head(std::size_t offset, RecordHead* head);

  std::span<const std::byte> memory_;
  std::optional<Rank> summed_by_;
  std::uint64_t written_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t had_ = 0;         ///< popped after restart(): will be announced once more
  std::size_t record_bytes_ = 0;  ///< of what peek() gave; 0: nothing, or popped
  RecordHead checked_;            ///< the last whose checksum was right
  std::optional<std::uint64_t> checked_at_;  ///< its position; none comes twice in an epoch
};

}  // namespace unisono::verbs
