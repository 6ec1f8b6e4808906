// Room in a list before something is done that cannot be undone.
#pragma once

#include <vector>

namespace unisono {

/// Adding one to the list cannot fail afterwards.
template <typename Entry>
void make_room(std::vector<Entry>& list) {
  if (list.size() == list.capacity()) list.reserve(2 * list.size() + 8);
}

}  // namespace unisono
