// How ranks are timed: a barrier of our own before each iteration (the same for every library that
// is measured, so none pays for another's), the slowest rank counts, and the median of those.
// Header only and free of the library, because the harnesses of other libraries use it too.
//
// The ranks share one page of memory; where they cannot (several hosts) another class with the
// same members takes the place of Lockstep. Thread rule: one thread per rank.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace unisono::perf {

inline double now_us() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

inline constexpr int kIterationsMax = 4096;
inline constexpr int kCpusMax = 1024;

/// The start of the shared memory, zero-filled before use; the durations of all ranks follow.
struct SharedHeader {
  std::uint64_t nonce;                  ///< proves that this is the page that was meant
  std::atomic<std::uint64_t> decision;  ///< what rank 0 tells the others
  std::atomic<std::uint64_t> sum;       ///< of one integer per rank
  std::atomic<std::uint64_t> moment;    ///< a time or an iteration that one rank publishes
  std::atomic<std::int32_t> failed;     ///< 1 + the rank that gave up; 0: none
  std::atomic<std::uint64_t> cpus[kCpusMax / 64];  ///< bits: where at least one rank may run
  alignas(64) std::atomic<std::uint32_t> arrived;
  alignas(64) std::atomic<std::uint32_t> epoch;
};

inline std::size_t shared_bytes(int ranks) {
  return sizeof(SharedHeader) + static_cast<std::size_t>(ranks) * kIterationsMax * sizeof(double);
}

class Lockstep {
 public:
  /// `memory`: shared_bytes(ranks) bytes, mapped by all ranks; must outlive this. `cpu_limit`: the
  /// processors' worth of time that all ranks have together, where that is less than the
  /// processors they may run on.
  Lockstep(void* memory, int rank, int ranks, int cpu_limit = kCpusMax)
      : header_(static_cast<SharedHeader*>(memory)),
        durations_(
            reinterpret_cast<double*>(static_cast<std::byte*>(memory) + sizeof(SharedHeader))),
        rank_(rank),
        ranks_(ranks),
        cpu_limit_(cpu_limit) {
    publish_cpus();
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  SharedHeader& header() { return *header_; }

  void barrier() {
    // Pairs with the release below: what any rank wrote before is seen by all after.
    const std::uint32_t epoch = header_->epoch.load(std::memory_order_acquire);
    if (header_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        static_cast<std::uint32_t>(ranks_)) {
      header_->arrived.store(0, std::memory_order_relaxed);
      header_->epoch.store(epoch + 1, std::memory_order_release);
      if (sleeps) futex(FUTEX_WAKE, static_cast<std::uint32_t>(ranks_));
      return;
    }
    // All ranks have published where they may run before the first barrier ends.
    if (spins_ == kSpinsUnknown && epoch > 0) spins_ = choose_spins();
    for (int i = 0; header_->epoch.load(std::memory_order_acquire) == epoch; ++i) wait(i, epoch);
  }

  void record(int iteration, double duration_us) {
    durations_[static_cast<std::size_t>(rank_) * kIterationsMax + iteration] = duration_us;
  }
  /// The slowest rank's time of each of the first `iterations` records. All ranks call it.
  std::vector<double> slowest(int iterations) {
    barrier();
    std::vector<double> worst(iterations, 0.0);
    for (int r = 0; r < ranks_; ++r) {
      for (int i = 0; i < iterations; ++i) {
        const double mine = durations_[static_cast<std::size_t>(r) * kIterationsMax + i];
        worst[i] = std::max(worst[i], mine);
      }
    }
    barrier();
    return worst;
  }
  /// Rank 0's value, on all ranks.
  std::uint64_t decide(std::uint64_t value) {
    if (rank_ == 0) header_->decision.store(value, std::memory_order_relaxed);
    barrier();
    value = header_->decision.load(std::memory_order_relaxed);
    barrier();
    return value;
  }
  /// The sum of all ranks' values, on all ranks.
  std::uint64_t total(std::uint64_t value) {
    header_->sum.fetch_add(value, std::memory_order_relaxed);
    barrier();
    value = header_->sum.load(std::memory_order_relaxed);
    barrier();
    if (rank_ == 0) header_->sum.store(0, std::memory_order_relaxed);
    barrier();
    return value;
  }

  /// Called again and again while a wait is long: to make progress in a library that does so only
  /// inside its own calls, or to give up by throwing.
  std::function<void()> idle;
  /// Wait in the kernel instead of spinning, for a library whose own threads need the core.
  bool sleeps = false;

 private:
  static constexpr int kSpinsUnknown = -1, kSpinsShort = 50, kSpinsLong = 20000;

  // Ranks are bound one by one, so none knows from its own affinity how many processors there are.
  void publish_cpus() {
    cpu_set_t set;
    // What fails is a mask that is too short: there are more than enough.
    if (sched_getaffinity(0, sizeof set, &set) != 0) std::memset(&set, 0xff, sizeof set);
    for (int cpu = 0; cpu < std::min<int>(kCpusMax, CPU_SETSIZE); ++cpu) {
      if (!CPU_ISSET(cpu, &set)) continue;
      header_->cpus[cpu / 64].fetch_or(std::uint64_t{1} << (cpu % 64));
    }
  }
  // With a processor each a waiter spins; without, it must leave the processor almost at once.
  int choose_spins() const {
    int cpus = 0;
    for (const auto& word : header_->cpus) cpus += std::popcount(word.load());
    return ranks_ <= std::min(cpus, cpu_limit_) ? kSpinsLong : kSpinsShort;
  }

  void wait(int turn, std::uint32_t epoch) {
    if (sleeps) {
      futex(FUTEX_WAIT, epoch);
    } else if (turn < spins_) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      if (idle) idle();
      sched_yield();
    }
  }
  void futex(int operation, std::uint32_t value) {
    syscall(SYS_futex, &header_->epoch, operation, value, nullptr, nullptr, 0);
  }

  SharedHeader* header_;
  double* durations_;
  int rank_, ranks_, cpu_limit_;
  int spins_ = kSpinsUnknown;
};

/// How long and how to measure one point.
struct Policy {
  double budget_us = 100e3;  ///< of the timed iterations, untimed preparation included
  int iterations = 0;        ///< 0: as many as the budget allows
  int warm_up = -1;          ///< -1: fifteen to sixty, by the budget
  int iterations_min = 5;    ///< whatever the budget says
};

struct Timing {
  int iterations = 0;
  double min_us = 0, median_us = 0, p99_us = 0;  ///< of fewer than 100 the p99 is the largest
  double loop_us = 0;  ///< back to back, without barriers: slowest rank's total / iterations
  /// The same by the device's clock, where the work is TimedByDevice.
  double device_min_us = 0, device_median_us = 0, device_p99_us = 0, device_loop_us = 0;

  void divide(double by) {
    for (double* us : {&min_us, &median_us, &p99_us, &loop_us, &device_min_us, &device_median_us,
                       &device_p99_us, &device_loop_us}) {
      *us /= by;
    }
  }
};

/// Work that a device does while the host goes on.
template <typename Work>
concept TimedByDevice = requires(Work& work) {
  work.settle();       // waits for the device
  work.start_clock();  // of the device; what run() starts comes after it
  work.stop_clock();   // waits for all that run() started; microseconds since
};

inline Timing summarise(std::vector<double> worst) {
  Timing timing;
  std::sort(worst.begin(), worst.end());
  const std::size_t n = worst.size();
  timing.iterations = static_cast<int>(n);
  timing.min_us = worst.front();
  timing.median_us = (worst[(n - 1) / 2] + worst[n / 2]) / 2;
  timing.p99_us = worst[(n * 99 + 99) / 100 - 1];
  return timing;
}

/// All ranks call this with the same policy. Work has:
///   void select(int k)  the buffers of iteration k (hot: always the same, cold: they rotate)
///   void rewrite()      the owner writes the selected input anew
///   void run()          the operation, on the selected buffers
///   int slots()         how many different buffers select() knows
///   void sweep()        writes all buffers, so that caches hold the last of them
/// and, where run() only starts a device's work, what TimedByDevice asks for.
template <typename Sync, typename Work>
class Measurement {
 public:
  Measurement(Sync& sync, const Policy& policy, Work& work)
      : sync_(sync), policy_(policy), work_(work) {}

  Timing measure() {
    timed(0);  // the first call may connect and allocate
    const int iterations = choose_iterations();
    if (work_.slots() > 1) make_cold(iterations);
    for (int i = 0; i < iterations; ++i) timed(i);
    Timing timing = summarise(sync_.slowest(iterations));
    if constexpr (TimedByDevice<Work>) add_device_times(iterations, timing);
    const int loops = std::max(2, iterations / 2);
    back_to_back(loops, timing);
    if constexpr (TimedByDevice<Work>) {
      back_to_back(loops_of_device(loops, timing.loop_us), timing);
    }
    return timing;
  }

 private:
  void timed(int iteration) {
    work_.select(iteration);
    work_.rewrite();
    settle();
    sync_.barrier();
    const double start = now_us();
    start_clock();
    work_.run();
    stop_clock(iteration);
    sync_.record(iteration, now_us() - start);
  }

  void settle() {
    if constexpr (TimedByDevice<Work>) work_.settle();
  }
  void start_clock() {
    if constexpr (TimedByDevice<Work>) work_.start_clock();
  }
  void stop_clock(int iteration) {
    if constexpr (TimedByDevice<Work>) {
      device_us_.resize(kIterationsMax);
      device_us_[static_cast<std::size_t>(iteration)] = work_.stop_clock();
    }
  }
  void add_device_times(int iterations, Timing& timing) {
    for (int i = 0; i < iterations; ++i) {
      sync_.record(i, device_us_[static_cast<std::size_t>(i)]);
    }
    const Timing device = summarise(sync_.slowest(iterations));
    timing.device_min_us = device.min_us;
    timing.device_median_us = device.median_us;
    timing.device_p99_us = device.p99_us;
  }

  int choose_iterations() {
    double cost = cost_of(1);
    const int warm_up = policy_.warm_up >= 0 ? policy_.warm_up : warm_up_within(cost);
    // All ranks must repeat alike, so rank 0's clock decides.
    const int agreed = static_cast<int>(sync_.decide(static_cast<std::uint64_t>(warm_up)));
    if (agreed > 0) cost = cost_of(agreed);
    const int fitting = static_cast<int>(std::min(policy_.budget_us / cost, 1e6));
    const int wanted = policy_.iterations > 0
                           ? std::min(policy_.iterations, kIterationsMax)
                           : std::clamp(fitting, policy_.iterations_min, kIterationsMax);
    return static_cast<int>(sync_.decide(static_cast<std::uint64_t>(wanted)));
  }

  /// Enough for the choices that a library makes in its first calls: half of the budget, but
  /// fifteen calls whatever they cost, unless that is more than a second.
  int warm_up_within(double cost) const {
    if (cost * 15 > 1e6) return 0;
    return static_cast<int>(std::clamp(policy_.budget_us / 2 / cost, 15.0, 60.0));
  }

  /// Wall time of one iteration with everything around it. The slowest is left out where there are
  /// several: one interruption must not end a measurement after a handful of iterations.
  double cost_of(int iterations) {
    double total = 0, slowest = 0;
    for (int i = 0; i < iterations; ++i) {
      const double start = now_us();
      timed(i);
      const double cost = now_us() - start;
      total += cost;
      slowest = std::max(slowest, cost);
    }
    sync_.barrier();
    const double cost = iterations > 1 ? (total - slowest) / (iterations - 1) : total;
    return std::max(cost, 0.05);
  }

  /// Lets every process touch the pages that will be used, then pushes them out of the caches.
  void make_cold(int iterations) {
    const int used = std::min(work_.slots(), iterations);
    for (int i = 0; i < used; ++i) timed(i);
    if (used < work_.slots()) work_.sweep();
    sync_.barrier();
  }

  /// A single call's clock may cost more than the call (processes that share a GPU take turns on it
  /// for each), and so does a loop's at its ends: as many calls as half of the budget has room for.
  int loops_of_device(int tried, double loop_us) {
    const double fitting = std::min(policy_.budget_us / 2 / std::max(loop_us, 0.05), 1e5);
    const int loops = std::max(tried, policy_.iterations > 0 ? 0 : static_cast<int>(fitting));
    return static_cast<int>(sync_.decide(static_cast<std::uint64_t>(loops)));
  }

  void back_to_back(int loops, Timing& timing) {
    settle();
    sync_.barrier();
    const double start = now_us();
    start_clock();
    for (int i = 0; i < loops; ++i) {
      work_.select(i);
      work_.run();
    }
    stop_clock(0);
    sync_.record(0, now_us() - start);
    timing.loop_us = sync_.slowest(1).front() / loops;
    if constexpr (TimedByDevice<Work>) {
      sync_.record(0, device_us_.front());
      timing.device_loop_us = sync_.slowest(1).front() / loops;
    }
  }

  Sync& sync_;
  const Policy& policy_;
  Work& work_;
  std::vector<double> device_us_;  // of each iteration
};

template <typename Sync, typename Work>
Timing measure(Sync& sync, const Policy& policy, Work& work) {
  return Measurement<Sync, Work>(sync, policy, work).measure();
}

/// What an operation that does nothing costs here: part of every figure.
template <typename Sync>
Timing measure_empty(Sync& sync) {
  struct Nothing {
    void select(int) {}
    void rewrite() {}
    // A call, as real operations are; the barrier keeps it from being removed.
    [[gnu::noinline]] void run() { asm volatile("" ::: "memory"); }
    int slots() { return 1; }
    void sweep() {}
  } nothing;
  return measure(sync, {.budget_us = 20e3}, nothing);
}

}  // namespace unisono::perf
