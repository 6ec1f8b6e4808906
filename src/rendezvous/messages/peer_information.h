// What ranks publish of themselves when they join, and what follows from it for two of them: all
// ranks of a job come to the same answer. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "rendezvous/messages/job.h"

namespace unisono {

/// The rest of the line of Member::addresses that begins with `kind`; empty when there is none.
std::string find_address(const std::string& addresses, std::string_view kind);

/// True when the two can share memory.
bool same_host(const Member& a, const Member& b);
/// True when the two, of the same host, know their processes by the same numbers.
bool see_each_other(const Member& a, const Member& b);
/// Equal for ranks of the same host. It refers to the member's text.
using HostKey = std::tuple<std::string_view, std::uint64_t, std::uint32_t>;
inline HostKey host_key(const Member& member) {
  return {member.host, member.network_namespace, member.uid};
}

}  // namespace unisono
