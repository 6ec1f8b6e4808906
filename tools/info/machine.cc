#include "tools/info/machine.h"

#include "comm/verbs_settings.h"
#include "topology/allowed_cpus.h"
#include "topology/cpu_quota.h"
#include "transports/shm/shared_segment.h"
#include "transports/tcp/stream_transport.h"

namespace unisono::info {
namespace {

Probe probe_shared_memory() {
  const auto listener = shm::LocalListener::open();
  if (!listener) return {false, listener.error().message()};
  return {true, ""};
}

Probe probe_cuda(const Config& config) {
  const Result<cuda::Survey> survey = survey_gpus(config);
  if (!survey) return {false, survey.error().message()};
  return {true, ""};
}

}  // namespace

std::vector<TransportRow> probe_transports(const Config& config) {
  return {{"shm", probe_shared_memory()},
          {"unix", probe_stream_transport(StreamOptions::Family::kUnix)},
          {"tcp", probe_stream_transport(StreamOptions::Family::kTcp)},
          {"loopback", {true, "ranks as threads only"}},
          {"verbs", probe_verbs_transport(verbs_options(config, 0, 1))},
          {"cuda", probe_cuda(config)}};
}

Result<std::vector<VerbsPort>> list_rdma_ports(const Config& config) {
  return list_verbs_ports(verbs_options(config, 0, 1));
}

Result<cuda::Survey> survey_gpus(const Config& config) {
  return cuda::survey_devices(config.cuda.use, config.cuda.library);
}

bool would_share_cores(int ranks) {
  const std::string cpus[]{topology::read_allowed_cpus()};
  return ranks > topology::count_cpus(cpus, topology::read_cpu_quota());
}

}  // namespace unisono::info
