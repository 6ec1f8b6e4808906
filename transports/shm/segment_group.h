// The shared memory of one communicator's members: one block of the segment, and how to read what
// a member offers in place.
//
// Thread rule: one thread at a time. Members are communicator ranks.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transports/shm/segment.h"
#include "transports/shm/shared_segment.h"
#include "transports/shm/single_copy.h"

namespace unisono::shm {

class SegmentGroup {
 public:
  ~SegmentGroup();
  SegmentGroup(const SegmentGroup&) = delete;
  SegmentGroup& operator=(const SegmentGroup&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  int self() const { return self_; }
  /// For a group that is closed unused because only so many members could open it: the last of
  /// these gives the block back.
  void set_opened_by(std::size_t members) { opened_by_ = members; }
  /// For a group that is closed unused because members failed before they had all opened it.
  void note_failure() { has_failed_ = true; }

  GroupHeader& header() const { return *reinterpret_cast<GroupHeader*>(block_); }
  Counters& counters(int member) const { return *reinterpret_cast<Counters*>(member_base(member)); }
  CellLine& cell(int member, int slot) const {
    return *reinterpret_cast<CellLine*>(member_base(member) + sizeof(Counters) +
                                        static_cast<std::size_t>(slot) * kCellStride);
  }
  TrialStamps& trial_stamps(int member) const {
    return *reinterpret_cast<TrialStamps*>(member_base(member) + sizeof(Counters) +
                                           kCellSlots * kCellStride);
  }
  /// Slot 0 of a member's window; the others follow. Who writes into it reserves it first.
  std::byte* window(int member) const {
    return windows_ + static_cast<std::size_t>(member) * kWindowBytes;
  }
  /// Reserves the pages of this rank's window, or of both where members take turns.
  Status reserve_windows();
  /// The group's rotation, for what is written through the caches and past them. Who writes into it
  /// asks first whether there is memory for it, which the first question reserves.
  std::span<std::byte> cached_rotation() const { return rotation_.first(cached_bytes_); }
  std::span<std::byte> streamed_rotation() const {
    return rotation_.subspan(cached_bytes_, kStreamedRotation);
  }
  bool has_rotation();
  /// Its part for what would fit cells, likewise.
  std::span<std::byte> payload_rotation() const { return rotation_.last(cached_bytes_); }
  bool has_payload_rotation();
  /// Of this host's ranks; whether what these learn of each other is what the group learns.
  TrialMemory& trial_memory() const;
  bool has_all_ranks() const;
  /// Two members write in turn into each other's cells and windows (native/shared_cells.h).
  bool takes_turns() const { return size() == 2; }

  /// True when the member is a thread of this process: its pointers are valid here.
  bool in_this_process(int member) const { return same_process_[static_cast<std::size_t>(member)]; }
  /// How all members may read this rank's memory in place. With `by_single_copy` private memory,
  /// too, where all of them can.
  MemoryHandle handle_of(std::span<const std::byte> memory, bool by_single_copy) const;
  /// Checks the handle that a member told, and maps the member's heap or registered range at first
  /// use. Errors name the member: kProtocol, and from mapping kSystem and kOutOfResources.
  Result<MemoryView> open(int member, const MemoryHandle& handle) const;
  /// Fills `out` from `offset` of memory that is not kNone.
  Status copy(int member, const MemoryView& from, std::size_t offset,
              std::span<std::byte> out) const;

 private:
  friend class SharedSegment;
  SegmentGroup(std::shared_ptr<SharedSegment::State> shared, std::uint32_t block,
               std::vector<int> members);
  void count_dead() const;
  bool count_closed(int member) const;
  Status reserve(std::span<std::byte> memory) const;
  std::byte* member_base(int member) const {
    return block_ + kPageBytes + static_cast<std::size_t>(member) * SegmentLayout::member_bytes();
  }

  std::shared_ptr<SharedSegment::State> shared_;
  std::uint32_t block_number_;
  std::vector<int> members_;
  int self_ = 0;
  std::size_t opened_by_ = 0;
  bool has_failed_ = false;
  std::byte* block_ = nullptr;
  std::byte* windows_ = nullptr;
  std::size_t cached_bytes_ = 0;
  std::span<std::byte> rotation_;
  std::vector<bool> same_process_;
  bool all_same_process_ = true;
  bool readable_by_all_ = true;
  bool mappable_by_all_ = true;
  bool all_have_heap_ = true;  // of this rank
  bool windows_reserved_ = false;
  std::optional<bool> has_rotation_, has_payload_rotation_;  // not set: nobody has asked
};

}  // namespace unisono::shm
