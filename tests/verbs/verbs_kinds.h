// The verbs transport for the conformance suite: over the fake device, and over this machine's
// ports where there are any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/transport/factories.h"
#include "transports/verbs/verbs_transport.h"

namespace unisono::test {

/// Empty in a build without verbs. Kinds that begin with "verbs_port" need a port of this machine
/// and are there when it has one.
std::vector<TransportKind> verbs_kinds();
/// Why there are no kinds over real ports; empty when there are.
std::string why_no_verbs_ports();

/// `side`: a TCP stream transport of the same rank.
Result<std::unique_ptr<Transport>> make_verbs(const std::string& kind, const std::string& job_id,
                                              int ranks, Rank rank,
                                              std::unique_ptr<Transport> side);

}  // namespace unisono::test
