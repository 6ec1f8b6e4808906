#include "native/offer.h"

#include <string>

namespace unisono::native {

Place choose_path(const shm::FabricGroup& group, AccessPath access, const void* pointer,
                  std::size_t bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  if (bytes == 0 || access == AccessPath::kWindow) return {};
  if (group.all_in_this_process()) return {OfferPath::kPointer, address};
  std::uint64_t offset = 0;
  if (group.in_own_heap(pointer, bytes, &offset)) {
    return {OfferPath::kHeap, offset};
  }
  if (access == AccessPath::kSingleCopy && group.readable_by_all()) {
    return {OfferPath::kSingleCopy, address};
  }
  return {};
}

Result<View> resolve(shm::FabricGroup& group, int member, OfferPath path, std::uint64_t address,
                     std::size_t bytes) {
  View view;
  view.path = path;
  switch (path) {
    case OfferPath::kWindow:
      return view;
    case OfferPath::kCell:  // where a call allows it, its meet() has seen to it
      break;
    case OfferPath::kPointer:
      if (!group.in_this_process(member)) break;
      view.base = reinterpret_cast<const std::byte*>(address);
      return view;
    case OfferPath::kHeap: {
      UNISONO_ASSIGN(view.base, group.in_heap_of(member, address, bytes));
      return view;
    }
    case OfferPath::kSingleCopy:
      if (group.in_this_process(member)) {
        // A thread's memory needs no system call.
        view.path = OfferPath::kPointer;
        view.base = reinterpret_cast<const std::byte*>(address);
      }
      view.address = address;
      return view;
  }
  return Status(ErrorCode::kProtocol,
                "rank " + std::to_string(member) +
                    " offers its buffer in a way this call does not know (" +
                    std::to_string(static_cast<int>(path)) + ")",
                member);
}

}  // namespace unisono::native
