#include "native/progress.h"

namespace unisono::native {

bool Progress::slot_is_free(std::uint64_t chunk, Members readers) {
  const bool used_in_this_call = chunk >= shm::kWindowSlots;
  const std::uint64_t needed = used_in_this_call ? chunk - shm::kWindowSlots + 1 : 0;
  const Members who = used_in_this_call ? readers : Members{0, group_.size()};
  for (int member = who.first; member < who.last; ++member) {
    if (member != group_.self() && !has_drained(member, needed)) return false;
  }
  return true;
}

}  // namespace unisono::native
