// Which algorithms there are, and what each needs. Pure; safe from any thread.
#pragma once

#include <string>

#include "algorithms/algorithm.h"
#include "base/result.h"

namespace unisono::tools {

/// Those that have algorithms.
std::string names_of_collectives();
/// The error names them.
Result<Collective> parse_collective(const std::string& name);

/// Of one collective, or of all where `collective` is empty.
Result<std::string> list_algorithms(const std::string& collective, bool as_json);

}  // namespace unisono::tools
