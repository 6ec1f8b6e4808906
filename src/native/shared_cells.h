// The cells of one group: what every call begins with, and all that a small call needs. A member's
// cell of call s lies in slot s mod kCellSlots; storing its flag publishes payload and record.
//
// Two members take turns with each other's cells: where both give and take, a rank writes what it
// read four calls ago. Those lines are in its own cache, so each goes between the cores once a call
// and not twice, there and back (16 KiB each way between two cores of an EPYC: 0.8 us instead of
// 2.4). Where one only gives nothing is gained or lost. Calls of all kinds take turns alike, since
// members may disagree about what they call.
//
// A call ends only when every member has been seen in the call before, with an equal record. So
// ranks that make different calls all know it by the end of the next call, whoever reads whose
// data. After a call that waits for everyone, the next one need not look.
//
// A cell may be overwritten once every member has read it. No acknowledgement is needed for that:
// a member that has arrived at call s has finished all calls before s, and everyone has arrived at
// s - 2 when call s begins. Who is there may still look at cells of s - 3, but not of s - 4.
//
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "native/transfer.h"
#include "transports/shm/segment_group.h"

namespace unisono::native {

class SharedCells {
 public:
  explicit SharedCells(shm::SegmentGroup& group);

  int size() const { return size_; }
  int self() const { return self_; }
  /// The number of this call.
  std::uint64_t sequence() const { return sequence_; }

  /// Goes on to the next call.
  void next() {
    ++sequence_;
    next_look_ = 0;
    lines_ = row(sequence_);
  }
  shm::CellLine& line(int member) const { return *lines_[member]; }
  shm::CellLine& own() const { return *lines_[self_]; }
  /// Puts what members will read into shared memory, past the caches where `streams`.
  static void write(std::byte* to, const std::byte* from, std::size_t bytes, bool streams);
  /// Payload that does not fit the line.
  static std::byte* long_payload(shm::CellLine& line) {
    return reinterpret_cast<std::byte*>(&line) + sizeof(shm::CellLine);
  }

  /// Shows the others the payload and record, which are written.
  void publish() { own().flag.store(sequence_, std::memory_order_release); }
  /// Pairs with publish() of `member`.
  bool arrived(int member) const {
    return lines_[member]->flag.load(std::memory_order_acquire) == sequence_;
  }
  /// Everyone's flag of this call has been seen, and equal records.
  void saw_everyone() { known_arrival_ = sequence_; }
  /// True when everyone has been seen in the call before this one. `status`: a disagreement. The
  /// records of `sources` have been compared in this call: they hold the digest of that one.
  bool saw_previous(MemberRange sources, Status* status) {
    return known_arrival_ + 1 >= sequence_ || look_at_previous(sources, status);
  }
  /// True when saw_previous() is false because of `member`.
  bool misses_in_previous(int member) const;
  /// Prefetches the line of the next call's cell for writing, while nobody waits for it. Only that
  /// line: prefetching a long payload stalls this call (4 KiB broadcast: 0.48 instead of 0.34 us).
  void prefetch_next() const;

  /// Why `member`, which made another call, and this rank cannot go on.
  Status mismatch(int member) const { return mismatch(member, own(), line(member)); }

 private:
  shm::CellLine& line_of(std::uint64_t call, int member) const { return *row(call)[member]; }
  shm::CellLine* const* row(std::uint64_t call) const {
    return table_.data() + (call & row_mask_) * static_cast<std::size_t>(size_);
  }
  bool look_at_previous(MemberRange sources, Status* status);
  Status mismatch(int member, const shm::CellLine& ours, const shm::CellLine& theirs) const;

  int size_;
  int self_;
  std::uint64_t sequence_ = 0;
  std::uint64_t known_arrival_ = 0;  // everyone has arrived at this call at least
  int next_look_ = 0;                // members before this one have been seen in the previous call
  std::vector<shm::CellLine*> table_;  // [turn][slot][member]
  std::uint64_t row_mask_;
  shm::CellLine* const* lines_;  // the row of this call
};

}  // namespace unisono::native
