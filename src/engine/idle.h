// How a waiting rank waits: spin, then yield, then sleep. Two pinned ranks must not sleep, eight
// ranks on two cores must not spin.
#pragma once

#include <cstdint>
#include <string_view>

namespace unisono {

/// The plan of one rank, chosen once from the ranks that share this host's cores.
struct IdlePolicy {
  int spins = 0;                    ///< busy looks before the first yield
  bool yields = true;               ///< then give the core away between looks
  std::int64_t sleep_after_us = 0;  ///< of waiting; then sleep between looks. 0: never
  std::int64_t sleep_us = 50;

  /// `mode`: auto, spin, yield or sleep (UNISONO_WAIT).
  static IdlePolicy choose(std::string_view mode, int local_ranks, int cores);
};

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace unisono
