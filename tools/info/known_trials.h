// What jobs of this user have learned of this machine, as `unisono info` shows it. Reads files; one
// thread.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "config/config.h"
#include "unisono/types.h"

namespace unisono::info {

/// Identity, folder and every file of this machine with a table each, for people.
std::string describe_machine(const Config& config);
nlohmann::ordered_json json_of_machine(const Config& config);

/// A call that is native with automatic access: a line that says how calls of such a size begin in
/// a job of so many processes here, and what earlier jobs found. `bytes` as nccl-tests count.
std::string explain_trials(const Config& config, Collective collective, std::size_t bytes,
                           int ranks);

}  // namespace unisono::info
