// The verbs transport of a build without verbs headers: it says so. Any thread.
#include "transports/verbs/verbs_transport.h"

namespace unisono {
namespace {

constexpr const char* kReason =
    "this build has no verbs transport: rdma-core's headers were missing or UNISONO_WITH_VERBS was "
    "OFF when it was configured (Debian, Ubuntu: install libibverbs-dev and librdmacm-dev, "
    "configure with "
    "-DUNISONO_WITH_VERBS=ON)";

}  // namespace

Result<std::vector<VerbsPort>> list_verbs_ports(const VerbsOptions&) {
  return Status(ErrorCode::kUnsupported, kReason);
}

Probe probe_verbs_transport(const VerbsOptions&) { return Probe{false, kReason}; }

Result<std::unique_ptr<Transport>> make_verbs_transport(VerbsOptions, std::unique_ptr<Transport>) {
  return Status(ErrorCode::kUnsupported, kReason);
}

}  // namespace unisono
