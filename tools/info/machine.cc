#include "tools/info/machine.h"

#include "topology/allowed_cpus.h"
#include "topology/cpu_quota.h"
#include "transports/shm/fabric.h"
#include "transports/tcp/stream_transport.h"

namespace unisono::info {
namespace {

Probe probe_shared_memory() {
  const auto listener = shm::FabricListener::open();
  if (!listener) return {false, listener.error().message()};
  return {true, ""};
}

}  // namespace

std::vector<TransportRow> probe_transports() {
  return {{"shm", probe_shared_memory()},
          {"unix", probe_stream_transport(StreamOptions::Family::kUnix)},
          {"tcp", probe_stream_transport(StreamOptions::Family::kTcp)},
          {"loopback", {true, "ranks as threads only"}},
          {"verbs", {false, "not in this build"}},
          {"cuda", {false, "not in this build"}}};
}

bool would_share_cores(int ranks) {
  const std::string cpus[]{topology::read_allowed_cpus()};
  return ranks > topology::count_cpus(cpus, topology::read_cpu_quota());
}

}  // namespace unisono::info
