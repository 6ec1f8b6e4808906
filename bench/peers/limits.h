// What the parts of the limits program share: clock, placement, the CSV row, a second process.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tools/perf/lockstep.h"

namespace limits {

// One part each; main() runs them in turn.
void measure_wake_ups();
void measure_single_copy();
void measure_sockets();
void measure_memory();
void measure_exchanges();
void measure_slots();

inline double now_s() { return unisono::perf::now_us() * 1e-6; }

inline void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), &set);
  sched_setaffinity(0, sizeof set, &set);
}

inline void row(const std::string& test, std::string variant, std::size_t bytes, double value,
                const char* unit) {
  std::replace(variant.begin(), variant.end(), ',', ';');  // one CSV field
  std::printf("%s,%s,%zu,%.4g,%s\n", test.c_str(), variant.c_str(), bytes, value, unit);
  std::fflush(stdout);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Touched memory.
inline char* map(std::size_t bytes, int flags = MAP_PRIVATE) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("limits: memory");
    std::exit(2);
  }
  std::memset(memory, 1, bytes);
  return static_cast<char*>(memory);
}

/// Runs `self` here on one core and `other` in a child on another; returns when both have ended.
template <typename Self, typename Other>
void run_pair(int own_cpu, int other_cpu, Self&& self, Other&& other) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(other_cpu);
    other();
    _exit(0);
  }
  pin(own_cpu);
  self();
  waitpid(child, nullptr, 0);
}

/// A word alone on its cache line.
struct alignas(64) Line {
  std::atomic<std::uint32_t> word{0};
};

inline void spin_until(const Line& line, std::uint32_t value) {
  while (line.word.load(std::memory_order_acquire) != value) {
  }
}

}  // namespace limits
