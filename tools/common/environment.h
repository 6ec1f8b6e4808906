// The environment this process was started with, for commands that pass it on or follow a
// convention that is not ours (NO_COLOR, TERM). UNISONO_* settings are read by the configuration
// table of the library, not here. Call it
// from one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::tools {

/// The value of `name`, if it is set. The view lives as long as the environment is unchanged.
std::optional<std::string_view> environment_value(std::string_view name);

/// Takes `name` out of the environment, for this process and those it starts.
void remove_from_environment(const char* name);

/// As many hardware queues as a GPU has, unless the user wants another number: a stream that waits
/// for a peer holds up those it shares one with. CUDA reads it when it is loaded.
void ask_for_all_hardware_queues();

/// All entries, "NAME=value".
std::vector<std::string> inherited_environment();

}  // namespace unisono::tools
