// What ranks publish of themselves when they join, and what follows from it for two of them: all
// ranks of a job come to the same answer. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/arbiter.h"

namespace unisono {

/// The rest of the line of Member::addresses that begins with `kind`; empty when there is none.
std::string find_address(const std::string& addresses, std::string_view kind);

/// True when the two can share memory.
bool same_host(const Member& a, const Member& b);

}  // namespace unisono
