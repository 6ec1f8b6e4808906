#include "native/levels.h"

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

namespace unisono::native {
namespace {

// The members of each domain, 0 where they are not as the canonical tree needs them.
int equal_domains(const std::vector<int>& domains) {
  const std::size_t first =
      static_cast<std::size_t>(std::find_if(domains.begin(), domains.end(),
                                            [&](int domain) { return domain != domains[0]; }) -
                               domains.begin());
  const bool fits = first >= 2 && first < domains.size() && domains.size() % first == 0;
  if (!fits || !std::has_single_bit(first)) return 0;
  std::set<int> seen;
  for (std::size_t begin = 0; begin < domains.size(); begin += first) {
    const int domain = domains[begin];
    const bool is_one = std::all_of(domains.begin() + static_cast<std::ptrdiff_t>(begin),
                                    domains.begin() + static_cast<std::ptrdiff_t>(begin + first),
                                    [&](int other) { return other == domain; });
    if (domain < 0 || !is_one || !seen.insert(domain).second) return 0;
  }
  return static_cast<int>(first);
}

std::vector<int> domains_by(LevelsBy by, std::span<const Place> members, int ranks) {
  std::vector<int> domains;
  for (std::size_t member = 0; member < members.size(); ++member) {
    domains.push_back(by == LevelsBy::kNodes    ? members[member].node
                      : by == LevelsBy::kCaches ? members[member].cache
                                                : static_cast<int>(member) / ranks);
  }
  return domains;
}

}  // namespace

Levels levels_of(std::span<const Place> members, const LevelsSetting& setting) {
  if (members.empty() || setting.by == LevelsBy::kOff) return {};
  if (setting.by != LevelsBy::kAutomatic) {
    const int ranks = equal_domains(domains_by(setting.by, members, setting.ranks));
    return ranks == 0 ? Levels{} : Levels{ranks, setting.by};
  }
  for (const LevelsBy by : {LevelsBy::kNodes, LevelsBy::kCaches}) {
    const int ranks = equal_domains(domains_by(by, members, 0));
    if (ranks > 0 && static_cast<int>(members.size()) / ranks <= ranks) return {ranks, by};
  }
  return {};
}

}  // namespace unisono::native
