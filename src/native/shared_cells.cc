#include "native/shared_cells.h"

#include <algorithm>

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

SharedCells::SharedCells(shm::FabricGroup& group) : size_(group.size()), self_(group.self()) {
  for (int slot = 0; slot < shm::kCellSlots; ++slot) {
    for (int member = 0; member < size_; ++member) table_.push_back(&group.cell(member, slot));
  }
  lines_ = table_.data();
}

bool SharedCells::look_for_arrivals() {
  const std::uint64_t needed = needed_arrival();
  std::uint64_t known = sequence_ - 1;
  for (int member = 0; member < size_; ++member) {
    if (member == self_) continue;
    // The newest first: it spares the look at the three calls that follow.
    std::uint64_t seen = flag_of(sequence_ - 1, member);
    if (seen < needed) seen = flag_of(needed, member);
    if (seen < needed) return false;
    known = std::min(known, seen);
  }
  known_arrival_ = known;
  return true;
}

bool SharedCells::delays_writing(int member) const {
  return member != self_ && sequence_ > shm::kCellSlots && known_arrival_ < needed_arrival() &&
         flag_of(needed_arrival(), member) < needed_arrival();
}

void SharedCells::prefetch_next() const {
  const std::size_t slot = (sequence_ + 1) % shm::kCellSlots;
  prefetch_to_write(reinterpret_cast<const std::byte*>(
      table_[slot * static_cast<std::size_t>(size_) + static_cast<std::size_t>(self_)]));
}

Status SharedCells::mismatch(int member, const CallRecord& own_record) const {
  return Status(ErrorCode::kMismatch,
                "rank " + std::to_string(self_) + " called " + describe(own_record) + ", rank " +
                    std::to_string(member) + " called " + describe(line(member).record) +
                    "; all ranks must make the same calls in the same order",
                member);
}

}  // namespace unisono::native
