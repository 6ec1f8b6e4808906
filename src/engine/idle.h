// How a waiting rank waits: spin, then yield, then sleep. Two pinned ranks must not sleep, eight
// ranks on two cores must not spin, and where others take the core away neither is of use.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace unisono {

/// The plan of a waiting rank.
struct IdlePolicy {
  int spins = 0;                        ///< busy looks first, since something moved
  int spins_per_yield = 0;              ///< to find out whether others want the core; 0: does not
  Duration spin_for = Duration::max();  ///< and no longer than this
  Duration sleep_after = Duration::max();  ///< of waiting: sleeps between looks; yields before that
  Duration sleep_for = std::chrono::microseconds(50);

  /// `mode`: auto, spin, yield or sleep (UNISONO_WAIT). `threads` share these cores.
  static IdlePolicy choose(std::string_view mode, int threads, int cores);
  /// For a rank whose core others want: it gets the core back when it wakes, and not after their
  /// turns, as when it yields.
  static IdlePolicy on_a_taken_core();
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

/// Who else wants the core of a waiting thread, whatever was configured: ranks that the job does
/// not know to be there, other jobs, containers, the rank's own program. Found out by yielding. One
/// thread at a time; who() any thread.
class Contention {
 public:
  enum class Who : std::uint8_t {
    kNobody,
    kCompany,  ///< threads that give the core back when they have nothing to do
    kRival     ///< who gives it back when the scheduler takes it
  };

  /// A yield of the calling thread took this long. `expected`: company is.
  void yielded(Duration took, bool expected, TimePoint now) { note(who_ran(took, expected), now); }
  void note(Who found, TimePoint now);
  Who who() const { return who_.load(std::memory_order_relaxed); }

 private:
  static Who who_ran(Duration took, bool expected);

  std::atomic<Who> who_{Who::kNobody};
  Duration holds_{};  ///< what was found, before it is looked at anew
  TimePoint until_{};
};

/// The plan of one rank. It changes with ProcessThreads and with what Contention finds, so each
/// wait asks for it anew. Other processes of the job are taken to run as many threads beside their
/// ranks as this one. Any thread.
class IdleChoice {
 public:
  IdleChoice(std::string_view mode, const HostSeats& seats);

  const IdlePolicy& now(Contention::Who who = Contention::Who::kNobody) const {
    if (who == Contention::Who::kRival) return taken_;
    return shares_core(who) ? crowded_ : roomy_;
  }
  bool shares_core(Contention::Who who) const {
    return who != Contention::Who::kNobody || ProcessThreads::count() > room_;
  }

 private:
  IdlePolicy roomy_, crowded_, taken_;  // one and the same where the user has said how
  int room_;                            ///< threads of this process that the cores suffice for
};

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace unisono
