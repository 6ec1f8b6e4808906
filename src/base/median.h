// The middle of values that were measured.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>

namespace unisono {

/// The middle one of `values`, which it reorders; of an even number the upper one of both. Not of
/// none.
template <typename Range>
auto median(Range&& values) {
  const auto middle = std::begin(values) + std::size(values) / 2;
  std::nth_element(std::begin(values), middle, std::end(values));
  return *middle;
}

}  // namespace unisono
