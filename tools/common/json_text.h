// JSON as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace unisono::tools {

/// Paths and names of hosts may be of bytes that are no UTF-8: U+FFFD stands for these, where
/// dump() throws by default. `indent`: spaces of each level; -1: all in one line.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace unisono::tools
