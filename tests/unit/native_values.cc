#include "native_values.h"

namespace unisono::test {

std::vector<std::int32_t> elements_of(const NativeSum& sum, std::size_t first, std::size_t count) {
  std::uint32_t of_element_zero = 0;
  for (int source = sum.first; source < sum.last; ++source) {
    of_element_zero += sum.call * 31 + static_cast<std::uint32_t>(source) * 1009 +
                       static_cast<std::uint32_t>(sum.target) * 7919;
  }
  const auto step = 3 * static_cast<std::uint32_t>(sum.last - sum.first);
  std::vector<std::int32_t> elements(count);
  for (std::size_t i = 0; i < count; ++i) {
    elements[i] =
        static_cast<std::int32_t>(of_element_zero + step * static_cast<std::uint32_t>(first + i));
  }
  return elements;
}

}  // namespace unisono::test
