// Single variables of the environment, for the tables of this folder. Any thread, while nobody
// changes the environment.
#pragma once

#include <string>

#include "base/result.h"

namespace unisono::config {

/// Null where it is not set or empty.
const char* read_variable(const std::string& name);

/// As read_variable(), and null where this program has more rights than who started it, which chose
/// the environment.
const char* read_own_variable(const std::string& name);

/// Leaves `out` where it is not set. kInvalidArgument names the variable and its value.
Status read_integer(const std::string& name, int low, int high, int* out);

}  // namespace unisono::config
