#include "transports/shm/fabric_group.h"

#include <algorithm>

#include "transports/shm/fabric_state.h"

namespace unisono::shm {

FabricGroup::FabricGroup(std::shared_ptr<Fabric::State> fabric, std::uint32_t block,
                         std::vector<int> members)
    : fabric_(std::move(fabric)), block_number_(block), members_(std::move(members)) {
  const SegmentLayout& layout = fabric_->layout;
  const int own = fabric_->peers.self;
  self_ = static_cast<int>(std::find(members_.begin(), members_.end(), own) - members_.begin());
  block_ = fabric_->segment->base() + layout.block_offset(block);
  windows_ = block_ + layout.block_head_bytes(layout.rank_count);
  reserved_bytes_ = layout.block_head_bytes(members_.size());
  opened_by_ = members_.size();
  for (const int member : members_) {
    const bool same = fabric_->same_process[static_cast<std::size_t>(member)];
    same_process_.push_back(same);
    all_same_process_ = all_same_process_ && same;
    readable_by_all_ = readable_by_all_ && fabric_->can_read(member, own);
  }
}

FabricGroup::~FabricGroup() {
  // Release: what this member did in the block comes before the last one clears it. Acquire: the
  // last one clears after what all did.
  const std::uint32_t closed = header().closed_count.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (closed == opened_by_) fabric_->return_block(block_number_);
}

Rank FabricGroup::world_rank(int member) const {
  const int local = members_[static_cast<std::size_t>(member)];
  return fabric_->peers.world_ranks[static_cast<std::size_t>(local)];
}

Status FabricGroup::reserve_window() {
  if (window_reserved_) return {};
  const auto offset = static_cast<std::size_t>(window(self_) - fabric_->segment->base());
  UNISONO_TRY(fabric_->segment->reserve(offset, kWindowBytes));
  window_reserved_ = true;
  reserved_bytes_ += kWindowBytes;
  return {};
}

bool FabricGroup::in_own_heap(const void* pointer, std::size_t bytes, std::uint64_t* offset) const {
  return fabric_->heap->locate(pointer, bytes, offset);
}

Result<const std::byte*> FabricGroup::in_heap_of(int member, std::uint64_t offset,
                                                 std::size_t bytes) {
  return fabric_->in_heap_of(members_[static_cast<std::size_t>(member)], member, offset, bytes);
}

Status FabricGroup::read(int member, std::uint64_t address, void* out, std::size_t bytes) const {
  return fabric_->read(members_[static_cast<std::size_t>(member)], member, address,
                       {static_cast<std::byte*>(out), bytes});
}

}  // namespace unisono::shm
