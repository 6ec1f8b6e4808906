// The way from a port of this rank to one of a peer, as queue pairs must be told it. Values only;
// any thread.
#pragma once

#include <infiniband/sa.h>
#include <infiniband/verbs.h>

#include <cstdint>

#include "transports/verbs/hello.h"
#include "transports/verbs/rail.h"

namespace unisono::verbs {

struct Path {
  ibv_ah_attr address{};
  ibv_mtu mtu = IBV_MTU_256;
  std::uint8_t ack_timeout = 0;
};

/// By what both ends have told each other, and the options.
Path told_path(const PortSurvey& port, const QueuePairEnd& peer, const VerbsOptions& options);
/// By the record that the network gives for it: of a subnet manager, or what the kernel knows of an
/// Ethernet.
Path recorded_path(const PortSurvey& port, const QueuePairEnd& peer, const VerbsOptions& options,
                   const ibv_sa_path_rec& record);

}  // namespace unisono::verbs
