// Text that holds a key. It leaves nothing behind where it was: neither when it goes, nor when it
// grows, nor when it is moved.
//
// Thread rule: a value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/export.h"

namespace unisono {

/// Clears memory in a way that no compiler leaves out.
UNISONO_API void cleanse_bytes(void* memory, std::size_t bytes);

/// Clears memory before giving it back to `Upstream`.
template <typename T, typename Upstream = std::allocator<T>>
struct CleansingAllocator {
  using value_type = T;
  template <typename U>
  struct rebind {
    using other =
        CleansingAllocator<U, typename std::allocator_traits<Upstream>::template rebind_alloc<U>>;
  };
  T* allocate(std::size_t count) { return Upstream().allocate(count); }
  void deallocate(T* memory, std::size_t count) {
    cleanse_bytes(memory, count * sizeof(T));
    Upstream().deallocate(memory, count);
  }
  bool operator==(const CleansingAllocator&) const { return true; }
};

/// For text that an interface wants or gives as a std::string.
inline void cleanse(std::string* text) {
  cleanse_bytes(text->data(), text->size());
  text->clear();
}

template <typename Allocator>
class BasicSecretText {
 public:
  BasicSecretText() = default;
  explicit BasicSecretText(std::string_view text) : bytes_(text.begin(), text.end()) {}

  void append(std::string_view more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  /// The rest moves to the front.
  void drop_front(std::size_t count) {
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(count), bytes_.end(), bytes_.begin());
    shrink(bytes_.size() - count);
  }
  /// New bytes are zero; those beyond are cleared.
  void resize(std::size_t count) {
    if (count < bytes_.size()) return shrink(count);
    bytes_.resize(count);
  }
  char* data() { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }
  bool operator==(const BasicSecretText&) const = default;

 private:
  void shrink(std::size_t count) {
    cleanse_bytes(bytes_.data() + count, bytes_.size() - count);
    bytes_.resize(count);
  }

  // Not a string, which would keep short text in the object itself.
  std::vector<char, Allocator> bytes_;
};

using SecretText = BasicSecretText<CleansingAllocator<char>>;

}  // namespace unisono
