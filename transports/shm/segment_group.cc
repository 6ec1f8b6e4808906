#include "transports/shm/segment_group.h"

#include <algorithm>

#include "transports/shm/shared_segment_state.h"

namespace unisono::shm {

SegmentGroup::SegmentGroup(std::shared_ptr<SharedSegment::State> shared, std::uint32_t block,
                           std::vector<int> members)
    : shared_(std::move(shared)), block_number_(block), members_(std::move(members)) {
  const SegmentLayout& layout = shared_->layout;
  const int own = shared_->peers.self;
  self_ = static_cast<int>(std::find(members_.begin(), members_.end(), own) - members_.begin());
  block_ = shared_->segment->base() + layout.block_offset(block);
  windows_ = block_ + layout.block_head_bytes(layout.rank_count);
  // What was told may be no length of ours.
  const std::size_t told = shared_->control().cached_rotation.load(std::memory_order_relaxed);
  cached_bytes_ =
      std::clamp(told, kCachedRotationMin, kCachedRotationMax) / kPageBytes * kPageBytes;
  rotation_ = {windows_ + layout.rank_count * kWindowBytes, 2 * cached_bytes_ + kStreamedRotation};
  opened_by_ = members_.size();
  for (const int member : members_) {
    const bool same = shared_->same_process[static_cast<std::size_t>(member)];
    same_process_.push_back(same);
    all_same_process_ = all_same_process_ && same;
    readable_by_all_ = readable_by_all_ && shared_->can_read(member, own);
    mappable_by_all_ = mappable_by_all_ && shared_->can_map(member, own);
    all_have_heap_ = all_have_heap_ && shared_->has_heap(member, own);
  }
}

SegmentGroup::~SegmentGroup() {
  // Until this member is counted nobody else gets the block.
  if (has_failed_ || header().raised.load(std::memory_order_relaxed) != 0) count_dead();
  if (count_closed(self_)) shared_->return_block(block_number_);
}

// Those whose processes have ended close nothing any more. A failed rank that is alive may still
// write here: as long as one is, the block is not given to others.
void SegmentGroup::count_dead() const {
  if (opened_by_ != members_.size()) return;
  for (int member = 0; member < size(); ++member) {
    if (member == self_ || !shared_->has_ended(members_[static_cast<std::size_t>(member)]))
      continue;
    static_cast<void>(count_closed(member));
  }
}

// True for the last one.
bool SegmentGroup::count_closed(int member) const {
  const std::uint64_t bit = std::uint64_t{1} << (member % 64);
  std::atomic<std::uint64_t>& closed = header().closed[member / 64];
  if ((closed.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return false;
  // Release: what this member did in the block comes before the last one clears it. Acquire: the
  // last one clears after what all did.
  return header().closed_count.fetch_add(1, std::memory_order_acq_rel) + 1 == opened_by_;
}

TrialMemory& SegmentGroup::trial_memory() const { return shared_->control().trials; }

bool SegmentGroup::has_all_ranks() const { return size() == shared_->size(); }

Status SegmentGroup::reserve_windows() {
  if (windows_reserved_) return {};
  UNISONO_TRY(reserve({window(takes_turns() ? 0 : self_), (takes_turns() ? 2 : 1) * kWindowBytes}));
  windows_reserved_ = true;
  return {};
}

bool SegmentGroup::has_rotation() {
  if (!has_rotation_)
    has_rotation_ = reserve(rotation_.first(cached_bytes_ + kStreamedRotation)).ok();
  return *has_rotation_;
}

bool SegmentGroup::has_payload_rotation() {
  if (!has_payload_rotation_) has_payload_rotation_ = reserve(payload_rotation()).ok();
  return *has_payload_rotation_;
}

Status SegmentGroup::reserve(std::span<std::byte> memory) const {
  const auto offset = static_cast<std::size_t>(memory.data() - shared_->segment->base());
  UNISONO_TRY(shared_->segment->reserve(offset, memory.size()));
  // Else the first trials of paths would time first accesses.
  shared_->segment->populate(offset, memory.size());
  return {};
}

MemoryHandle SegmentGroup::handle_of(std::span<const std::byte> memory, bool by_single_copy) const {
  return shared_->handle_of(memory, {.in_this_process = all_same_process_,
                                     .by_heap = all_have_heap_,
                                     .by_mapping = mappable_by_all_,
                                     .by_single_copy = by_single_copy && readable_by_all_});
}

Result<MemoryView> SegmentGroup::open(int member, const MemoryHandle& handle) const {
  return shared_->open(members_[static_cast<std::size_t>(member)], member, handle);
}

Status SegmentGroup::copy(int member, const MemoryView& from, std::size_t offset,
                          std::span<std::byte> out) const {
  return shared_->copy(members_[static_cast<std::size_t>(member)], member, from, offset, out);
}

}  // namespace unisono::shm
