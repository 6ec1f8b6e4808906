#include "engine/idle.h"

#include <algorithm>

namespace unisono {

IdlePolicy IdlePolicy::choose(std::string_view mode, int threads, int cores) {
  if (mode == "spin") return {.spins = 1 << 30, .yields = false};
  if (mode == "yield") return {.spins = 0, .sleep_after_us = 0};
  if (mode == "sleep") return {.spins = 0, .sleep_after_us = 1};
  // A peer that is not running cannot answer: with more threads than cores every look that fails
  // gives the core away. Otherwise looking costs nobody anything for a while.
  if (threads > cores) return {.spins = 0, .sleep_after_us = 200'000};
  return {.spins = 20'000, .sleep_after_us = 200'000};
}

// The processes divide the cores that ranks leave free.
IdleChoice::IdleChoice(std::string_view mode, const HostSeats& seats)
    : roomy_(IdlePolicy::choose(mode, seats.ranks, seats.cores)),
      crowded_(IdlePolicy::choose(mode, seats.cores + 1, seats.cores)),
      room_(seats.here + std::max(seats.cores - seats.ranks, 0) / std::max(seats.processes, 1)) {}

}  // namespace unisono
