// Which GID and which partition of a port to use, found by what they are and never by number.
// Set-up only; the caller's thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/verbs_options.h"

namespace unisono::verbs {

/// kUnsupported: why a port is left out.
Status unusable(std::string reason);

/// Else Ethernet.
bool is_infiniband(const ibv_port_attr& attributes);
/// By its GID; else version 2, or InfiniBand.
bool is_roce_v1(const PortSurvey& port);
/// ::ffff:a.b.c.d
bool is_ipv4(std::span<const std::uint8_t, 16> gid);

/// Fills the survey's GID, with `port` and `attributes` given. An error lists the GIDs there are.
Status choose_gid(VerbsApi& api, ibv_context* context, const GidWish& wish, PortSurvey* survey);
/// The same GID of the same type under the number it has now.
Status find_gid_again(VerbsApi& api, ibv_context* context, PortSurvey* survey);

/// The lower fifteen bits name the partition. The upper bit is full membership: limited members of
/// one partition cannot talk with each other, so a key that has it is met by a full member alone
/// and one without it by either, the full one first.
Status choose_pkey(VerbsApi& api, ibv_context* context, int wanted, PortSurvey* survey);

}  // namespace unisono::verbs
