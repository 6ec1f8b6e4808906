// What trials have shown on this machine: a rank's runtime takes it from earlier jobs and leaves it
// to later ones.
#include <string>
#include <vector>

#include "base/log.h"
#include "comm/runtime.h"
#include "machine/facts_file.h"
#include "topology/allowed_cpus.h"

namespace unisono {
namespace {

machine::Folder facts_folder(const Config& config) { return {config.cache, config.cache_base}; }

}  // namespace

// What earlier jobs have learned on this host: its first rank says so to the others.
void Runtime::recall_trials(shm::LocalPeers* peers) {
  if (peers->self != 0 || !config_.keeps_facts()) return;
  std::vector<std::string> cpus;
  for (const Rank rank : peers->world_ranks) {
    const Member& member = world().members[static_cast<std::size_t>(rank)];
    cpus.push_back(find_address(member.addresses, "cpus"));
  }
  const HostLoad& load = host_loads_[static_cast<std::size_t>(world().rank)];
  const int ranks = static_cast<int>(peers->world_ranks.size());
  keeps_trials_of_ = machine::read_identity(topology::join_cpus(cpus), ranks, load.processes);
  const Result<TrialFacts> facts = machine::read_facts(facts_folder(config_), *keeps_trials_of_);
  peers->cores = keeps_trials_of_->cpus;
  if (facts) {
    peers->known = *facts;
  } else {
    if (facts.error().code() == ErrorCode::kUnsupported) keeps_trials_of_.reset();
    log::info("earlier trials are not known: " + facts.error().message());
  }
  // What cannot be kept would be measured by each job again.
  const bool measures = keeps_trials_of_ && config_.access == AccessPath::kAutomatic &&
                        !peers->known.host.are_known() && machine::can_write(facts_folder(config_));
  if (measures) peers->measuring_max = config_.measuring_max;
}

// What this job has learned, for the next.
void Runtime::keep_trials() {
  if (shared_segment_ == nullptr || !keeps_trials_of_) return;
  const TrialFacts learned = shared_segment_->learned();
  if (!knows_any(learned)) return;
  const Status kept = machine::add_facts(facts_folder(config_), *keeps_trials_of_, learned);
  if (!kept) log::info("trials are not kept for later jobs: " + kept.message());
}

}  // namespace unisono
