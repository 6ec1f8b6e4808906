// Element types as NumPy, the buffer protocol and DLPack write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/types.h"

namespace unisono::python {

/// What the elements of an array are. Without a `type` the array can be moved, not reduced.
struct ElementType {
  std::optional<DataType> type;
  std::string name;             ///< for messages
  bool holds_pointers = false;  ///< which mean nothing on another rank
};

/// Of a format of the buffer protocol; null stands for bytes.
ElementType type_of_format(const char* format, std::size_t item_bytes);
/// Of a NumPy dtype's name: those of ml_dtypes, which have no format.
ElementType type_of_name(std::string_view dtype);
/// Of a DLPack data type of one lane.
ElementType type_of_dlpack(std::uint8_t code, std::uint8_t bits);

}  // namespace unisono::python
