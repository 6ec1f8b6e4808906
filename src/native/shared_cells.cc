#include "native/shared_cells.h"

#include <bit>
#include <cstring>

#include "compute/compute.h"

namespace unisono::native {
namespace {

void prefetch_to_write(const std::byte* line) {
#if defined(__x86_64__)
  // The compiler emits PREFETCHW only for targets that promise it; elsewhere it is a no-op.
  asm volatile("prefetchw %0" : : "m"(*line));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

void SharedCells::write(std::byte* to, const std::byte* from, std::size_t bytes, bool streams) {
  if (bytes == 0) return;
  if (streams) return compute::copy_streaming(to, from, bytes);
  std::memcpy(to, from, bytes);
}

SharedCells::SharedCells(shm::SegmentGroup& group) : size_(group.size()), self_(group.self()) {
  static_assert(std::has_single_bit(unsigned{shm::kCellSlots}));
  const int turns = group.takes_turns() ? 2 : 1;
  for (int row = 0; row < turns * shm::kCellSlots; ++row) {
    const int turn = row / shm::kCellSlots;
    for (int member = 0; member < size_; ++member) {
      table_.push_back(&group.cell((member + turn) % size_, row % shm::kCellSlots));
    }
  }
  row_mask_ = static_cast<std::uint64_t>(turns * shm::kCellSlots - 1);
  lines_ = table_.data();
}

bool SharedCells::look_at_previous(MemberRange sources, Status* status) {
  const std::uint64_t previous = sequence_ - 1;
  const shm::CellLine& ours = line_of(previous, self_);
  for (; next_look_ < size_; ++next_look_) {
    if (next_look_ == self_ || sources.has(next_look_)) continue;
    const shm::CellLine& theirs = line_of(previous, next_look_);
    if (theirs.flag.load(std::memory_order_acquire) < previous) return false;
    if (theirs.record == ours.record) continue;
    *status = mismatch(next_look_, ours, theirs);
    return true;
  }
  known_arrival_ = previous;
  return true;
}

bool SharedCells::misses_in_previous(int member) const {
  return member != self_ && known_arrival_ + 1 < sequence_ &&
         line_of(sequence_ - 1, member).flag.load(std::memory_order_acquire) < sequence_ - 1;
}

void SharedCells::prefetch_next() const {
  prefetch_to_write(reinterpret_cast<const std::byte*>(&line_of(sequence_ + 1, self_)));
}

Status SharedCells::mismatch(int member, const shm::CellLine& ours,
                             const shm::CellLine& theirs) const {
  return Status(ErrorCode::kMismatch,
                "rank " + std::to_string(self_) + " called " + describe(ours.record) + ", rank " +
                    std::to_string(member) + " called " + describe(theirs.record) +
                    "; all ranks must make the same calls in the same order",
                member);
}

}  // namespace unisono::native
