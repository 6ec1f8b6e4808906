// UNISONO_VERBS_* as the verbs transport takes them. Values only; any thread.
#pragma once

#include "config/config.h"
#include "transports/verbs/verbs_transport.h"

namespace unisono {

VerbsOptions verbs_options(const Config& config, Rank rank, int size);

}  // namespace unisono
