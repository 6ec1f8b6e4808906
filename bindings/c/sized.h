// Structs that begin with their size: the library and its caller may know different versions.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "bindings/c/failure.h"

namespace unisono::c {

template <typename T>
void check_size(const T& given, const char* operation) {
  if (given.size < sizeof(std::size_t) || given.size % alignof(T) != 0) {
    refuse(operation, "a struct's member size is not set: begin with its UNISONO_..._INIT");
  }
  if (given.size > sizeof(T)) {
    refuse(operation,
           "a struct is larger than this version of the library knows it: its program was built "
           "for a newer version");
  }
}

/// What the caller has set, and for members that the caller does not know what `defaults` says.
/// Null: all of `defaults`.
template <typename T>
T with_defaults(const T* given, T defaults, const char* operation) {
  static_assert(std::is_trivially_copyable_v<T>);
  // A later member must not lie where callers of today have padding. Two end without any and are
  // not alike in all bits for another reason: a double, and room between members.
  static_assert(std::has_unique_object_representations_v<T> ||
                    std::is_same_v<T, unisono_call_options> || std::is_same_v<T, unisono_call>,
                "it has no padding");
  if (given == nullptr) return defaults;
  check_size(*given, operation);
  std::memcpy(&defaults, given, given->size);
  return defaults;
}

/// Writes the members that the caller knows.
template <typename T>
void give(T value, T* taker) {
  value.size = taker->size;
  std::memcpy(taker, &value, taker->size);
}

}  // namespace unisono::c
