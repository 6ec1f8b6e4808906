// See verbs_kinds.h.
#include "tests/verbs/verbs_kinds.h"

#include <map>
#include <mutex>

#include "tests/support/seed.h"
#include "tests/support/watchdog.h"
#include "tests/verbs/fake_fabric.h"
#include "transports/verbs/verbs_transport_state.h"

namespace unisono::test {
namespace {

using verbs::FakeDeviceOptions;
using verbs::FakeFabric;
using verbs::FakeFabricOptions;

struct Shape {
  int devices = 1;
  VerbsOptions options;
};

/// What each kind is made of.
Shape shape_of(const std::string& kind) {
  Shape shape;
  if (kind.ends_with("_2_ports")) shape.devices = 2;
  if (kind.ends_with("_4_ports")) shape.devices = 4;
  if (kind.ends_with("_stripes")) {
    shape.devices = 2;
    shape.options.queue_pairs = 3;
  }
  if (kind.ends_with("_with_sums")) shape.options.checksum = true;
  if (kind.ends_with("_cm")) shape.options.connect = VerbsConnect::kCm;
  if (kind.ends_with("_short_messages")) shape.options.message_bytes_max = 4096;
  if (kind.ends_with("_smallest_ring")) shape.options.ring_bytes = 64 * 1024;
  return shape;
}

/// One network per world, held by the transports of its ranks.
std::shared_ptr<FakeFabric> fabric_of(const std::string& job_id, int ranks, int devices) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<FakeFabric>> fabrics;
  const std::lock_guard guard(mutex);
  std::weak_ptr<FakeFabric>& known = fabrics[job_id];
  std::shared_ptr<FakeFabric> fabric = known.lock();
  if (fabric == nullptr) {
    FakeFabricOptions options = verbs::fake_world(ranks, devices);
    options.seed = seed();
    fabric = std::make_shared<FakeFabric>(std::move(options));
    known = fabric;
  }
  return fabric;
}

}  // namespace

std::string why_no_verbs_ports() {
  const Probe probe = probe_verbs_transport({});
  return probe.usable ? "" : probe.reason;
}

std::vector<TransportKind> verbs_kinds() {
  std::vector<TransportKind> kinds = {
      {"verbs_fake", 0, false},
      {"verbs_fake_short_messages", 0, false},
      {"verbs_fake_with_sums", 0, false},
  };
  // Under a sanitizer these will do: the code is the same.
  if (!is_sanitized() || is_full_run()) {
    for (const char* more :
         {"verbs_fake_4_ports", "verbs_fake_stripes", "verbs_fake_smallest_ring"}) {
      kinds.push_back({more, 0, false});
    }
  }
  if (why_no_verbs_ports().empty()) {
    kinds.push_back({"verbs_port", 0, true});
    kinds.push_back({"verbs_port_stripes", 0, true});
    kinds.push_back({"verbs_port_short_messages", 0, true});
    kinds.push_back({"verbs_port_cm", 0, true});
    kinds.push_back({"verbs_port_with_sums", 0, false});
  }
  return kinds;
}

Result<std::unique_ptr<Transport>> make_verbs(const std::string& kind, const std::string& job_id,
                                              int ranks, Rank rank,
                                              std::unique_ptr<Transport> side) {
  Shape shape = shape_of(kind);
  shape.options.rank = rank;
  shape.options.size = ranks;
  if (!kind.starts_with("verbs_fake")) {
    return make_verbs_transport(std::move(shape.options), std::move(side));
  }
  const std::shared_ptr<FakeFabric> fabric = fabric_of(job_id, ranks, shape.devices);
  // The view keeps its network alive for as long as any rank has one.
  const std::shared_ptr<verbs::VerbsApi> view = fabric->api(rank);
  const std::shared_ptr<verbs::VerbsApi> api(view.get(), [view, fabric](verbs::VerbsApi*) {});
  UNISONO_ASSIGN(std::unique_ptr<verbs::VerbsTransport> made,
                 verbs::VerbsTransport::make(api, std::move(shape.options), std::move(side)));
  return std::unique_ptr<Transport>(std::move(made));
}

}  // namespace unisono::test
