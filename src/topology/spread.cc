#include "topology/spread.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/small_file.h"
#include "topology/allowed_cpus.h"

namespace unisono::topology {
namespace {

constexpr std::size_t kListBytesMax = 16384;
constexpr int kNumberMax = 8192;

// "0-3,64" are 0, 1, 2, 3 and 64; what is no number ends it.
std::set<int> parse_list(const std::string& text) {
  std::set<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc()) break;
    int last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc()) break;
    }
    for (int number = std::max(first, 0); number <= std::min(last, kNumberMax); ++number) {
      numbers.insert(number);
    }
    at = parsed.ptr + 1;
  }
  return numbers;
}

std::set<int> read_list(const std::string& path) {
  return parse_list(first_line(path, kListBytesMax));
}

std::set<int> read_sharers(const std::string& system, int cpu) {
  return read_list(system + "/cpu/cpu" + std::to_string(cpu) + "/cache/index3/shared_cpu_list");
}

std::set<int> read_node(const std::string& system, int node) {
  return read_list(system + "/node/node" + std::to_string(node) + "/cpulist");
}

}  // namespace

Spread read_spread(const std::string& mask, const std::string& system) {
  Spread spread;
  const std::vector<int> cpus = list_cpus(mask);
  std::set<int> seen;  // with a cache that is counted
  for (const int cpu : cpus) {
    if (seen.contains(cpu)) continue;
    const std::set<int> sharers = read_sharers(system, cpu);
    if (sharers.contains(cpu)) ++spread.caches;
    seen.insert(sharers.begin(), sharers.end());
  }
  for (const int node : read_list(system + "/node/online")) {
    const std::set<int> of_node = read_node(system, node);
    const bool has_any =
        std::any_of(cpus.begin(), cpus.end(), [&](int cpu) { return of_node.contains(cpu); });
    if (has_any) ++spread.nodes;
  }
  return spread;
}

Place read_place(const std::string& mask, const std::string& system) {
  const std::vector<int> cpus = list_cpus(mask);
  const auto holds_all = [&](const std::set<int>& some) {
    return std::all_of(cpus.begin(), cpus.end(), [&](int cpu) { return some.contains(cpu); });
  };
  Place place;
  if (cpus.empty()) return place;
  const std::set<int> sharers = read_sharers(system, cpus.front());
  if (!sharers.empty() && holds_all(sharers)) place.cache = *sharers.begin();
  for (const int node : read_list(system + "/node/online")) {
    if (holds_all(read_node(system, node))) place.node = node;
  }
  return place;
}

}  // namespace unisono::topology
