// A queue of what was seen last: the oldest goes where there is no room for another one.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace unisono {

/// Appends `what` to the `most` that are kept.
template <typename T>
void keep_latest(T what, std::size_t most, std::deque<T>* kept) {
  if (kept->size() == most) kept->pop_front();
  kept->push_back(std::move(what));
}

}  // namespace unisono
