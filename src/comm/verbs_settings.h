// The settings of a job as the verbs transport takes them. Values only; any thread.
#pragma once

#include "config/config.h"
#include "transports/verbs/verbs_transport.h"

namespace unisono {

inline VerbsOptions verbs_options(const Config& config, Rank rank, int size) {
  VerbsOptions options{config.verbs};
  options.rank = rank;
  options.size = size;
  options.checksum = config.checksum;
  return options;
}

}  // namespace unisono
