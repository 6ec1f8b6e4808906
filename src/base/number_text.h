// A text that is one number, as it stands in files, stores and addresses.
//
// Thread rule: any thread.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace unisono {

/// False where the text is not one decimal number, as a whole, that `Number` holds.
template <typename Number>
bool read_number(std::string_view text, Number* out) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && stop == end;
}

}  // namespace unisono
