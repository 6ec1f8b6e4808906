#include "machine/identity.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>

#include "topology/cpu_quota.h"
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

Identity read_identity(int cpus, int ranks, int processes) {
  utsname system{};
  const bool is_told = uname(&system) == 0;
  return {.processor = topology::read_processor_model(),
          .kernel = word_of(is_told ? system.release : ""),
          .cpus = cpus,
          .quota = topology::read_cpu_quota(),
          .ranks = ranks,
          .processes = processes};
}

std::string text_of(const Identity& identity) {
  return fmt::format("processor {}\nkernel {}\ncpus {}\nquota {:.3f}\nranks {}\nprocesses {}\n",
                     identity.processor, identity.kernel, identity.cpus, identity.quota,
                     identity.ranks, identity.processes);
}

}  // namespace unisono::machine
