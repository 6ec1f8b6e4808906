#include "tools/info/known_trials.h"

#include <fmt/format.h>

#include <vector>

#include "base/collective.h"
#include "machine/facts_file.h"
#include "native/way_costs.h"
#include "tools/common/sizes.h"
#include "tools/common/table.h"
#include "tools/info/levels.h"
#include "topology/allowed_cpus.h"
#include "transports/shm/trial_times.h"

namespace unisono::info {
namespace {

using machine::FoundFacts;
using machine::Identity;

Identity identity_here(int ranks, int processes) {
  return machine::read_identity(topology::read_allowed_cpus(), ranks, processes);
}

machine::Folder folder_of(const Config& config) { return {config.cache, config.cache_base}; }

/// What a file is to a job of as many ranks that starts here.
enum class Match { kSame, kOtherProcessors, kForeign };

Match match(const Identity& identity, Identity here) {
  here.ranks = identity.ranks;
  here.processes = identity.processes;
  if (identity == here) return Match::kSame;
  here.cpus = identity.cpus;
  here.quota = identity.quota;
  here.spread = identity.spread;
  return identity == here ? Match::kOtherProcessors : Match::kForeign;
}

std::string describe_age(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s old", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} minutes old", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.0f} hours old", seconds / 3600);
  return fmt::format("{:.0f} days old", seconds / 86400);
}

std::string describe_limits(const Identity& identity) {
  const std::string quota =
      identity.quota > 0 ? fmt::format(", time of {:.2f}", identity.quota) : "";
  const topology::Spread& spread = identity.spread;
  const std::string caches = spread.caches > 1 ? fmt::format(" of {} caches", spread.caches) : "";
  const std::string nodes = spread.nodes > 1 ? fmt::format(" of {} nodes", spread.nodes) : "";
  return fmt::format("{}{}{}{}", tools::counted(identity.cpus, "processor", "processors"), caches,
                     nodes, quota);
}

// One thing that was tried: its ways by name, each with its time.
struct Tried {
  std::string what;
  std::size_t bytes;  // the least of its class
  bool has_bound;     // the class ends at twice that
  bool is_call;       // which has more than that
  std::vector<std::pair<std::string, std::uint32_t>> ways;
  std::size_t fastest;
};

template <std::size_t kWays, typename Names>
Tried tried(std::string what, std::size_t least, std::size_t size, std::size_t sizes,
            const Names& names, const WayTimes<kWays>& times) {
  Tried one{std::move(what), least << size, size + 1 < sizes, false, {}, shm::fastest_way(times)};
  for (std::size_t way = 0; way < kWays; ++way) one.ways.emplace_back(names[way], times[way]);
  return one;
}

std::vector<Tried> list_tried(const TrialFacts& facts) {
  std::vector<Tried> list;
  std::vector<std::string> paths;
  for (const AccessPath path : kTriedPaths) paths.emplace_back(name_of(path));
  for (std::size_t c = 0; c < facts.calls.size(); ++c) {
    const std::string name(name_of(static_cast<Collective>(c)));
    for (std::size_t i = 0; i < kCallSizes; ++i) {
      if (!has_times(facts.calls[c][i])) continue;
      list.push_back(tried(name, kTriedCallMin, i, kCallSizes, paths, facts.calls[c][i]));
      list.back().is_call = true;
    }
  }
  for (std::size_t i = 0; i < kMessageSizes; ++i) {
    if (!has_times(facts.messages[i])) continue;
    list.push_back(
        tried("message", kTriedMessageMin, i, kMessageSizes, kMessageWays, facts.messages[i]));
  }
  for (std::size_t i = 0; i < kPieceSizes; ++i) {
    if (!has_times(facts.pieces[i])) continue;
    list.push_back(
        tried("piece of a ring", kTriedPieceMin, i, kPieceSizes, kPieceWays, facts.pieces[i]));
  }
  return list;
}

std::string describe_sizes(const Tried& one) {
  const std::string least = tools::format_bytes(one.bytes);
  if (!one.has_bound) return (one.is_call ? "over " : "from ") + least;
  const std::string most = tools::format_bytes(2 * one.bytes);
  return one.is_call ? least + " < b <= " + most : least + " <= b < " + most;
}

// "mapped 61.0, streamed 58.1": ways that were tried.
std::string describe_times(const Tried& one) {
  std::string text;
  for (const auto& [way, time] : one.ways) {
    if (time == 0) continue;
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ", way, time / 1e3);
  }
  return text;
}

std::string table_of(const TrialFacts& facts) {
  const std::vector<Tried> list = list_tried(facts);
  if (list.empty()) return "no calls were tried\n";
  tools::Table table({{"of", tools::Align::kLeft},
                      {"a rank gives b bytes", tools::Align::kLeft},
                      {"begins with", tools::Align::kLeft},
                      {"us for a MiB", tools::Align::kLeft}});
  for (const Tried& one : list) {
    table.add_row(
        {one.what, describe_sizes(one), one.ways[one.fastest].first, describe_times(one)});
  }
  return table.text();
}

std::string table_of(const HostFacts& facts) {
  if (!facts.are_known()) return "";
  std::string text = fmt::format(
      "measured when they met: an exchange of lines {} ns, a system call that copies {} ns\n",
      facts.waits[kLineWait], facts.waits[kKernelWait]);
  tools::Table table({{"copies, us for a MiB", tools::Align::kLeft},
                      {"write"},
                      {"read"},
                      {"write past caches"},
                      {"read of that"},
                      {"by the kernel"},
                      {"of own memory"}});
  for (std::size_t size = 0; size < kMeasuredCopySizes; ++size) {
    if (!has_times(facts.copies[size])) continue;
    std::vector<std::string> cells{tools::format_bytes(bytes_of_copy(size))};
    for (const std::uint32_t time : facts.copies[size]) {
      cells.push_back(time == 0 ? "-" : fmt::format("{:.1f}", time / 1e3));
    }
    table.add_row(cells);
  }
  return text + table.text();
}

nlohmann::ordered_json json_of(const HostFacts& facts) {
  if (!facts.are_known()) return nullptr;
  nlohmann::ordered_json json;
  for (std::size_t wait = 0; wait < facts.waits.size(); ++wait) {
    json["wait_ns"][std::string(kWaitNames[wait])] = facts.waits[wait];
  }
  for (std::size_t size = 0; size < kMeasuredCopySizes; ++size) {
    if (!has_times(facts.copies[size])) continue;
    nlohmann::ordered_json& copy = json["copy_ns_of_a_mib"][std::to_string(bytes_of_copy(size))];
    for (std::size_t i = 0; i < kCopyNames.size(); ++i) {
      if (facts.copies[size][i] != 0) copy[std::string(kCopyNames[i])] = facts.copies[size][i];
    }
  }
  return json;
}

nlohmann::ordered_json json_of(const FoundFacts& found, const Identity& here) {
  const Identity& identity = found.facts.identity;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Tried& one : list_tried(found.facts.trials)) {
    nlohmann::ordered_json times;
    for (const auto& [way, time] : one.ways) {
      if (time != 0) times[way] = time;
    }
    list.push_back({{"of", one.what},
                    {"bytes", one.bytes},
                    {"begins_with", one.ways[one.fastest].first},
                    {"ns_of_a_mib", times}});
  }
  return {{"path", found.path},
          {"age_seconds", found.age_seconds},
          {"host", identity.host},
          {"cpus", identity.cpus},
          {"caches", identity.spread.caches},
          {"nodes", identity.spread.nodes},
          {"quota", identity.quota},
          {"ranks", identity.ranks},
          {"processes", identity.processes},
          {"here", match(identity, here) == Match::kSame},
          {"measured", json_of(found.facts.trials.host)},
          {"tried", list}};
}

// What the largest calls of a class are predicted to take, where the host is known.
std::string describe_costs(const native::WayCosts& costs) {
  std::string text;
  for (std::size_t way = 0; way < costs.size(); ++way) {
    if (kTriedPaths[way] == AccessPath::kWindow) continue;  // private memory goes as kMapped
    const std::string cost = costs[way] == 0 ? "-" : fmt::format("{:.1f}", costs[way] / 1e3);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(kTriedPaths[way]), cost);
  }
  return text;
}

// What is known of a class of calls, in a sentence; empty: nothing.
std::string describe_known(const TrialFacts& facts, const Identity& here, Collective collective,
                           std::size_t given) {
  const int size = size_of_call(given);
  std::string text;
  for (const Tried& one : list_tried(facts)) {
    if (one.what != name_of(collective) || one.bytes != kTriedCallMin << size) continue;
    text = fmt::format("earlier jobs of {} here found, in us for a MiB: {}; so calls begin with {}",
                       here.processes == 1 ? "threads" : "processes", describe_times(one),
                       one.ways[one.fastest].first);
  }
  const native::WayCosts costs =
      native::predict_class(facts.host, {here.ranks, here.cpus}, collective, size);
  if (costs[0] == 0) return text;
  const std::string predicted =
      fmt::format("what ranks measured here predicts, in us for a call of {}: {}",
                  tools::format_bytes(largest_of_size(size)), describe_costs(costs));
  if (!text.empty()) return text + "\n  " + predicted;
  return fmt::format("{}; so calls begin with {}, and trials decide", predicted,
                     name_of(kTriedPaths[native::likely_way(costs)]));
}

}  // namespace

std::string describe_machine(const Config& config) {
  const Identity here = identity_here(1, 1);
  std::string text = fmt::format(
      "processor         {}\nkernel            {}\nranks may use     {}\nlevels            {}\n",
      here.processor, here.kernel, describe_limits(here), describe_levels());
  if (!config.keeps_facts()) {
    return text + "kept in           nowhere: UNISONO_CACHE=off\n";
  }
  if (const Status usable = machine::check_folder(folder_of(config)); !usable) {
    return text + fmt::format("kept in           nowhere: {}\n", usable.message());
  }
  text += fmt::format("kept in           {} (UNISONO_CACHE)\n", config.cache);
  std::size_t foreign = 0, own = 0;
  for (const FoundFacts& found : machine::find_facts(folder_of(config))) {
    const Identity& identity = found.facts.identity;
    const Match fit = match(identity, here);
    ++(fit == Match::kForeign ? foreign : own);
    if (fit == Match::kForeign) continue;
    text += fmt::format("\n{} in {}, {}{}: {}, {}\n{}{}",
                        tools::counted(identity.ranks, "rank", "ranks"),
                        tools::counted(identity.processes, "process", "processes"),
                        describe_limits(identity), fit == Match::kSame ? "" : ", not those of here",
                        found.path, describe_age(found.age_seconds),
                        table_of(found.facts.trials.host), table_of(found.facts.trials));
  }
  if (own == 0)
    text += "\nNothing is known yet: the first calls of jobs of several ranks find out.\n";
  if (foreign > 0) text += fmt::format("\nFiles of other machines or kernels: {}\n", foreign);
  return text;
}

nlohmann::ordered_json json_of_machine(const Config& config) {
  const Identity here = identity_here(1, 1);
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  const Status usable = config.keeps_facts() ? machine::check_folder(folder_of(config)) : Status();
  if (config.keeps_facts() && usable) {
    for (const FoundFacts& found : machine::find_facts(folder_of(config))) {
      files.push_back(json_of(found, here));
    }
  }
  return {{"processor", here.processor},
          {"kernel", here.kernel},
          {"host", here.host},
          {"cpus", here.cpus},
          {"caches", here.spread.caches},
          {"nodes", here.spread.nodes},
          {"quota", here.quota},
          {"levels", json_of_levels()},
          {"cache", config.keeps_facts() ? config.cache : "off"},
          {"cache_reason", usable.message()},
          {"files", files}};
}

std::string explain_trials(const Config& config, Collective collective, std::size_t bytes,
                           int ranks) {
  const bool is_block = facts_of(collective).input.holds == Holds::kBlock;
  const std::size_t given = is_block ? bytes / static_cast<std::size_t>(ranks) : bytes;
  if (size_of_call(given) < 0) return "so short calls are not tried";
  const std::string nothing = "no earlier job has tried such calls here, the first ones do";
  if (!config.keeps_facts()) return nothing + " (UNISONO_CACHE=off)";
  Identity here = identity_here(ranks, ranks);
  for (const int processes : {ranks, 1}) {
    here.processes = processes;
    const auto facts = machine::read_facts(folder_of(config), here);
    if (!facts) return nothing + " (" + facts.error().message() + ")";
    const std::string known = describe_known(*facts, here, collective, given);
    if (!known.empty()) return known;
  }
  return nothing;
}

}  // namespace unisono::info
