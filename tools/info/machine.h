// What this machine can do for ranks, asked of the same probes that the library asks. Reads files
// of the system and opens sockets; one thread.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "cuda/driver/survey.h"
#include "transports/transport.h"
#include "transports/verbs/verbs_transport.h"

namespace unisono::info {

struct TransportRow {
  std::string name;
  Probe probe;
};

/// Every transport, usable here or not.
std::vector<TransportRow> probe_transports(const Config& config);

/// The ports of RDMA devices; an error says why there is none.
Result<std::vector<VerbsPort>> list_rdma_ports(const Config& config);

/// The GPUs; an error says why there is none. Starts the driver unless UNISONO_CUDA is "off".
Result<cuda::Survey> survey_gpus(const Config& config);

/// True when this many ranks of this machine would have to share processors.
bool would_share_cores(int ranks);

}  // namespace unisono::info
