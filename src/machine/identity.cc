#include "machine/identity.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>

#include "topology/allowed_cpus.h"
#include "topology/cpu_quota.h"
#include "topology/host_identity.h"
#include "topology/processor_model.h"

namespace unisono::machine {
namespace {

// A line's rest: at least one character, none that would end it.
std::string word_of(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.empty() ? "unknown" : text;
}

}  // namespace

Identity read_identity(const std::string& cpus, int ranks, int processes) {
  const double quota = topology::read_cpu_quota();
  const std::string masks[]{cpus};
  utsname system{};
  const bool is_told = uname(&system) == 0;
  return {.processor = topology::read_processor_model(),
          .kernel = word_of(is_told ? system.release : ""),
          .cpus = topology::count_cpus(masks, quota),
          .quota = quota,
          .ranks = ranks,
          .processes = processes,
          .host = word_of(topology::read_host_identity().name),
          .spread = topology::read_spread(cpus)};
}

std::string text_of(const Identity& identity) {
  return fmt::format(
      "processor {}\nkernel {}\nhost {}\ncpus {}\ncaches {}\nnodes {}\nquota {:.3f}\nranks {}\n"
      "processes {}\n",
      identity.processor, identity.kernel, identity.host, identity.cpus, identity.spread.caches,
      identity.spread.nodes, identity.quota, identity.ranks, identity.processes);
}

}  // namespace unisono::machine
