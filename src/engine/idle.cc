#include "engine/idle.h"

namespace unisono {

IdlePolicy IdlePolicy::choose(std::string_view mode, int local_ranks, int cores) {
  if (mode == "spin") return {.spins = 1 << 30, .yields = false};
  if (mode == "yield") return {.spins = 0, .sleep_after_us = 0};
  if (mode == "sleep") return {.spins = 0, .sleep_after_us = 1};
  // A peer that is not running cannot answer: with more ranks than cores every look that fails
  // gives the core away. Otherwise looking costs nobody anything for a while.
  if (local_ranks > cores) return {.spins = 0, .sleep_after_us = 200'000};
  return {.spins = 20'000, .sleep_after_us = 200'000};
}

}  // namespace unisono
