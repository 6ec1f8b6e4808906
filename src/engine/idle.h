// How a waiting rank waits: spin, then yield, then sleep. Two pinned ranks must not sleep, eight
// ranks on two cores must not spin, and a rank whose core others want must do neither for long.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/per_process.h"

namespace unisono {

/// How long a waiting rank sleeps between looks, where it sleeps.
inline constexpr auto kIdleSleep = std::chrono::microseconds(50);

/// The plan of a waiting rank.
struct IdlePolicy {
  std::int64_t spins = 0;               ///< busy looks first, since something moved
  Duration spin_for = Duration::max();  ///< and no longer than this
  bool probes = false;  ///< yields now and then while it spins, to learn who wants the core
  Duration sleep_after = Duration::max();  ///< of waiting: sleeps between looks; yields before that

  bool sleeps_at_once() const { return sleep_after == Duration::zero(); }

  /// `mode`: auto, spin, yield or sleep (UNISONO_WAIT). `threads` share these cores.
  static IdlePolicy choose(std::string_view mode, int threads, int cores);
  /// For a rank whose core is contended: who sleeps gets the core back on waking, who yields when
  /// the others' time slices are over.
  static IdlePolicy on_a_contended_core();
};

/// The looks of one wait. Time is an argument; a quick wait does not pay for it.
class Looks {
 public:
  enum class Idling : std::uint8_t { kRelax, kYield, kSleep };

  explicit Looks(const IdlePolicy& plan) : plan_(&plan) {}
  void follow(const IdlePolicy& plan) { plan_ = &plan; }

  /// After each look. True when the time is wanted, by read().
  bool looked(bool moved);
  void read(TimePoint now);
  /// What to do after a look for nothing.
  Idling idling() const;

 private:
  bool spins() const { return looks_ < plan_->spins && now_ - moved_ < plan_->spin_for; }

  const IdlePolicy* plan_;
  TimePoint began_{}, moved_{}, now_{};
  std::int64_t looks_ = 0;  // for nothing, since something moved; stops at the last spin
  int since_reading_ = 0;   // looks
  bool has_moved_ = false;  // since then
};

/// Threads of this process that want a core: those that drive ranks that have peers, however many
/// jobs one of them is in, and HelperThreads. Any thread.
class ProcessThreads {
 public:
  static void add(int threads) { count_.get().fetch_add(threads, std::memory_order_relaxed); }
  static int count() { return count_.get().load(std::memory_order_relaxed); }

 private:
  static inline constinit PerProcess<std::atomic<int>> count_;
};

/// The ranks of a job that share a host's cores, as one of them sees them.
struct HostSeats {
  int ranks = 1;      ///< on the host
  int processes = 1;  ///< that these ranks are in
  int here = 1;       ///< ranks in this process
  int cores = 1;
};

/// Who else wants the core of a waiting thread, whatever was configured: ranks that the job does
/// not know to be there, other jobs, containers, the rank's own program. One thread at a time;
/// who() any thread.
class Contention {
 public:
  enum class Who : std::uint8_t {
    kNobody,
    kSharers,  ///< threads that give the core back when they have nothing to do
    kHog       ///< who gives it back when the time slice is over
  };

  /// Somebody was found in a yield, or it is time to forget.
  void note(Who found, TimePoint now);
  Who who() const { return who_.load(std::memory_order_relaxed); }

 private:
  struct Finding {
    Duration holds{};  ///< before it is forgotten
    TimePoint until{};
    void extend(TimePoint now);
  };
  std::atomic<Who> who_{Who::kNobody};
  Finding sharers_, hog_;
};

/// The plan of one rank. It changes with ProcessThreads and with what yields find, so each wait
/// asks for it anew. Other processes of the job are taken to run as many threads beside their ranks
/// as this one. Any thread.
class IdleChoice {
 public:
  using Who = Contention::Who;
  IdleChoice(std::string_view mode, const HostSeats& seats);

  const IdlePolicy& now(Who who = Who::kNobody) const {
    if (who == Who::kHog) return contended_;
    return shares_core(who) ? crowded_ : roomy_;
  }

  /// Yields, and says who had the core meanwhile. Nobody, where that would not change the plan.
  Who yield(Who known) const;
  /// Tells who had the core in a yield that took this long. `switched`: the kernel counted a
  /// switch.
  Who who_ran(Duration took, bool switched) const;

 private:
  bool shares_core(Who who) const { return who != Who::kNobody || ProcessThreads::count() > room_; }

  IdlePolicy roomy_, crowded_, contended_;
  int room_;            ///< threads of this process that the cores suffice for
  Duration fair_turn_;  ///< what ranks that share the core need at most before they wait again
  bool adapts_;
};

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace unisono
