#include "topology/allowed_cpus.h"

#include <sched.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace unisono::topology {
namespace {

constexpr std::size_t kCpusMax = 8192;
constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string read_allowed_cpus() {
  std::vector<cpu_set_t> set(kCpusMax / CPU_SETSIZE);
  const std::size_t bytes = set.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, bytes, set.data()) != 0) return "";
  std::string mask(kCpusMax / 4, '0');
  for (std::size_t cpu = 0; cpu < kCpusMax; ++cpu) {
    if (!CPU_ISSET_S(cpu, bytes, set.data())) continue;
    const std::size_t digit = kDigits.find(mask[cpu / 4]) | std::size_t{1} << cpu % 4;
    mask[cpu / 4] = kDigits[digit];
  }
  mask.resize(mask.find_last_not_of('0') + 1);
  return mask;
}

std::string join_cpus(std::span<const std::string> masks) {
  std::string joined;
  for (const std::string& mask : masks) {
    joined.resize(std::max(joined.size(), mask.size()), '0');
    for (std::size_t i = 0; i < mask.size(); ++i) {
      const std::size_t digit = kDigits.find(mask[i]);
      if (digit != std::string_view::npos) joined[i] = kDigits[kDigits.find(joined[i]) | digit];
    }
  }
  return joined;
}

std::vector<int> list_cpus(const std::string& mask) {
  std::vector<int> cpus;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::size_t digit = kDigits.find(mask[i]);
    if (digit == std::string_view::npos) continue;
    for (std::size_t bit = 0; bit < 4; ++bit) {
      if ((digit >> bit & 1) != 0) cpus.push_back(static_cast<int>(4 * i + bit));
    }
  }
  return cpus;
}

int count_cpus(std::span<const std::string> masks, double cpu_quota) {
  int count = static_cast<int>(list_cpus(join_cpus(masks)).size());
  if (cpu_quota > 0 && cpu_quota < count) count = static_cast<int>(cpu_quota);
  return std::max(count, 1);
}

}  // namespace unisono::topology
