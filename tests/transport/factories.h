// The transports that the conformance suite runs over, and how each is made for one rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/shared_world.h"
#include "transports/transport.h"

namespace unisono::test {

struct TransportKind {
  std::string name;
  std::size_t ring_bytes;  ///< shared memory per ring that the world must provide
  bool across_processes;   ///< also tried with ranks as processes
};

const std::vector<TransportKind>& transport_kinds();
const TransportKind& transport_kind(const std::string& name);

/// Makes the transport of one rank and exchanges addresses over the world: every rank calls it.
Result<std::unique_ptr<Transport>> make_transport(const std::string& kind, SharedWorld& world,
                                                  Rank rank);

}  // namespace unisono::test
