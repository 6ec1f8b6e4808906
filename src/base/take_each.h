// Hands over what waits in a list, where handling may run out of memory.
#pragma once

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace unisono {

/// Calls `handle` with each of the list, in order; what it adds to the list stays there. Where it
/// throws, that one and those behind it stay, to be handled again.
template <typename T, typename Handle>
void take_each(std::vector<T>* list, const Handle& handle) {
  std::vector<T> now = std::exchange(*list, {});
  auto next = now.begin();
  try {
    for (; next != now.end(); ++next) handle(*next);
  } catch (...) {
    now.erase(now.begin(), next);
    now.insert(now.end(), std::make_move_iterator(list->begin()),
               std::make_move_iterator(list->end()));
    list->swap(now);
    throw;
  }
}

}  // namespace unisono
