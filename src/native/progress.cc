#include "native/progress.h"

namespace unisono::native {

bool Progress::holds_slot(int member, std::uint64_t chunk, MemberRange readers) {
  const bool used_in_this_call = chunk >= shm::kWindowSlots;
  if (member == group_.self() || (used_in_this_call && !readers.has(member))) return false;
  return !has_drained(member, used_in_this_call ? chunk - shm::kWindowSlots + 1 : 0);
}

bool Progress::slot_is_free(std::uint64_t chunk, MemberRange readers) {
  for (int member = 0; member < group_.size(); ++member) {
    if (holds_slot(member, chunk, readers)) return false;
  }
  return true;
}

}  // namespace unisono::native
