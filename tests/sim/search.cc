#include "tests/sim/search.h"

#include <fmt/format.h>

#include <utility>

namespace unisono::sim {
namespace {

constexpr int kShrinkingRunsMax = 400;

}  // namespace

Case shrunk(Case c, const std::function<bool(const Case&)>& goes_wrong, int tries_max) {
  for (bool is_smaller = true; is_smaller;) {
    is_smaller = false;
    for (Case& candidate : smaller(c)) {
      if (tries_max-- <= 0) return c;
      if (!goes_wrong(candidate)) continue;
      c = std::move(candidate);
      is_smaller = true;
      break;
    }
  }
  return c;
}

std::string replay_of(std::uint64_t seed, const Limits& limits) {
  return fmt::format("sim --seed {} --ranks {}:{}{}{}{}", seed, limits.ranks_min, limits.ranks_max,
                     limits.with_faults ? "" : " --no-faults",
                     limits.shares_memory ? " --shared-memory" : "", limits.grows ? " --grow" : "");
}

std::string report_of(std::uint64_t seed, const Limits& limits, const Outcome& outcome) {
  const Case whole = make_case(seed, limits);
  const auto goes_wrong = [](const Case& c) { return !run(c).wrong.empty(); };
  const Case small = shrunk(whole, goes_wrong, kShrinkingRunsMax);
  return fmt::format(
      "seed {}: {}\n replay: {}\n case: {} smallest that fails too: {} it says: {}\n", seed,
      outcome.wrong, replay_of(seed, limits), describe(whole), describe(small), run(small).wrong);
}

}  // namespace unisono::sim
