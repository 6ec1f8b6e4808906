// How a waiting rank waits: spin, then yield, then sleep. Two pinned ranks must not sleep, eight
// ranks on two cores must not spin.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace unisono {

/// The plan of a waiting rank.
struct IdlePolicy {
  int spins = 0;                    ///< busy looks before the first yield
  bool yields = true;               ///< then give the core away between looks
  std::int64_t sleep_after_us = 0;  ///< of waiting; then sleep between looks. 0: never
  std::int64_t sleep_us = 50;

  /// `mode`: auto, spin, yield or sleep (UNISONO_WAIT). `threads` share these cores.
  static IdlePolicy choose(std::string_view mode, int threads, int cores);
};

/// Threads of this process that want a core: those that drive ranks that have peers, however many
/// jobs one of them is in, and HelperThreads. Any thread.
class ProcessThreads {
 public:
  static void add(int threads) { count_.fetch_add(threads, std::memory_order_relaxed); }
  /// In the child of a fork, which has none of them.
  static void forget() { count_.store(0, std::memory_order_relaxed); }
  static int count() { return count_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<int> count_{0};
};

/// The ranks of a job that share a host's cores, as one of them sees them.
struct HostSeats {
  int ranks = 1;      ///< on the host
  int processes = 1;  ///< that these ranks are in
  int here = 1;       ///< ranks in this process
  int cores = 1;
};

/// The plan of one rank. It changes with ProcessThreads, so each wait asks for it anew. Other
/// processes of the job are taken to run as many threads beside their ranks as this one. Any
/// thread.
class IdleChoice {
 public:
  IdleChoice(std::string_view mode, const HostSeats& seats);

  const IdlePolicy& now() const { return ProcessThreads::count() > room_ ? crowded_ : roomy_; }

 private:
  IdlePolicy roomy_, crowded_;
  int room_;  ///< threads of this process that the cores suffice for
};

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace unisono
