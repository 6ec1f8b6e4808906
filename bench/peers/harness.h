// What the harnesses have in common: the collectives, their data and results, the walk through the
// sizes and modes, and the CSV line. Timing is that of `unisono perf`, from the same header, so
// every library is measured by the same code.
//
// "bytes" is the whole buffer, as in nccl-tests: what all ranks hold together where it is divided
// into one block per rank, what each rank holds otherwise. Elements are floats.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "bench/peers/arguments.h"
#include "tools/perf/lockstep.h"
#include "tools/perf/slots.h"

namespace bench {

using unisono::perf::Lockstep;
using unisono::perf::now_us;
using unisono::perf::Slots;
using unisono::perf::Timing;

enum class Kind {
  kBarrier,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kGather,
  kScatter,
  kAllToAll,
  kSendReceive,
  kPingPong,
};

struct Collective {
  Kind kind;
  const char* name;
  bool divides;              ///< the buffer into one block per rank
  bool block_in, block_out;  ///< a rank's input or output is one block
};
inline constexpr Collective kCollectives[] = {
    {Kind::kBarrier, "barrier", false, false, false},
    {Kind::kAllReduce, "all_reduce", false, false, false},
    {Kind::kAllGather, "all_gather", true, true, false},
    {Kind::kReduceScatter, "reduce_scatter", true, false, true},
    {Kind::kBroadcast, "broadcast", false, false, false},
    {Kind::kGather, "gather", true, true, false},
    {Kind::kScatter, "scatter", true, false, true},
    {Kind::kAllToAll, "all_to_all", true, false, false},
    {Kind::kSendReceive, "send_receive", false, false, false},
    {Kind::kPingPong, "p2p", false, false, false},
};

/// One size of one collective on one rank, with the buffers of the current iteration.
struct Point {
  Kind kind = Kind::kBarrier;
  int rank = 0, ranks = 1;
  std::size_t count = 0;  ///< floats of the whole buffer
  std::size_t block = 0;  ///< floats of a rank's block, where it is divided
  float* in = nullptr;
  float* out = nullptr;
  int slot = 0;

  int next() const { return (rank + 1) % ranks; }
  int previous() const { return (rank + ranks - 1) % ranks; }
};

/// A library under measurement. run() throws when a call fails.
class Peer {
 public:
  virtual ~Peer() = default;
  /// Implementations of this collective; each name is added to the transport's. Empty: none.
  virtual std::vector<std::string> variants(Kind) { return {""}; }
  /// Before a size is measured: `slots` different buffers will be used; false: not this one.
  virtual bool begin(const Point&, const std::string& /*variant*/, const Slots&) { return true; }
  /// True where input and output are the same buffer, `in`.
  virtual bool is_in_place() { return false; }
  virtual void run(const Point& point) = 0;
  /// After a failure: sums in a communicator of the ranks that are left, made by the library's own
  /// means; throws where that fails. False: it has none.
  virtual bool go_on() { return false; }
};

// ---- Data: small integers, so that sums of floats are exact in any order ----------------------

inline constexpr std::size_t kPeriod = 97, kRepeats = 32;

inline float value(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % kPeriod);
}
inline float value_sum(int ranks, std::size_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += value(r, i);
  return sum;
}

/// What element i of this rank's output must be.
inline float expected(const Point& p, std::size_t i) {
  const std::size_t own = static_cast<std::size_t>(p.rank) * p.block;
  const int source = p.block > 0 ? static_cast<int>(i / p.block) : 0;
  switch (p.kind) {
    case Kind::kAllReduce:
      return value_sum(p.ranks, i);
    case Kind::kReduceScatter:
      return value_sum(p.ranks, own + i);
    case Kind::kAllGather:
    case Kind::kGather:
      return value(source, i % p.block);
    case Kind::kBroadcast:
      return value(0, i);
    case Kind::kScatter:
      return value(0, own + i);
    case Kind::kAllToAll:
      return value(source, own + i % p.block);
    case Kind::kSendReceive:
      return value(p.previous(), i);
    case Kind::kPingPong:
      return value(1 - p.rank, i);
    case Kind::kBarrier:
      break;
  }
  return 0;
}

inline std::size_t in_count(const Point& p, const Collective& c) {
  return c.block_in ? p.block : p.count;
}
inline std::size_t out_count(const Point& p, const Collective& c) {
  return c.block_out ? p.block : p.count;
}
/// Elements of this rank's output that are defined.
inline std::size_t checked_count(const Point& p, const Collective& c) {
  if (p.kind == Kind::kGather && p.rank != 0) return 0;
  if (p.kind == Kind::kBroadcast && p.rank == 0) return 0;
  return out_count(p, c);
}

inline double bus_factor(Kind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (kind == Kind::kAllReduce) return 2 * others;
  for (const Collective& c : kCollectives) {
    if (c.kind == kind && c.divides) return others;
  }
  return 1;
}

// ---- Memory -----------------------------------------------------------------------------------

inline void* map_shared(int ranks, int fd) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* memory =
      mmap(nullptr, unisono::perf::shared_bytes(ranks), PROT_READ | PROT_WRITE, flags, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// Zeroed shared memory for a Lockstep, inherited over fork.
inline void* share_with_children(int ranks) { return map_shared(ranks, -1); }

/// The same for processes of this host and user. The file has no name in a folder, so ranks that
/// are killed leave nothing; it is found under `path` as long as this process lives.
inline void* share_under(char* path, std::size_t path_bytes, int ranks) {
  const int fd = memfd_create("bench-peers", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(unisono::perf::shared_bytes(ranks))) != 0) {
    return nullptr;
  }
  std::snprintf(path, path_bytes, "/proc/%d/fd/%d", static_cast<int>(getpid()), fd);
  return map_shared(ranks, fd);
}
inline void* open_shared(const char* path, int ranks) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = map_shared(ranks, fd);
  close(fd);
  return memory;
}

inline bool has_cold(const Arguments& a) {
  return std::find(a.modes.begin(), a.modes.end(), "cold") != a.modes.end();
}

/// What the arena of one rank must hold.
inline std::size_t arena_bytes(const Arguments& a) {
  const std::size_t largest =
      a.sizes.empty() ? 0 : *std::max_element(a.sizes.begin(), a.sizes.end());
  return unisono::perf::arena_bytes(largest, largest, has_cold(a),
                                    unisono::perf::last_level_cache_bytes());
}

inline std::byte* map_private(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("arena");
    std::exit(2);
  }
  return static_cast<std::byte*>(memory);
}

// ---- The walk ---------------------------------------------------------------------------------

/// What Measurement measures: the peer's call on slot after slot.
class PointWork {
 public:
  PointWork(Peer& peer, const Collective& collective, Point point, const Slots& slots)
      : peer_(peer),
        collective_(collective),
        point_(point),
        slots_(slots),
        block_(kPeriod * kRepeats) {
    for (std::size_t i = 0; i < block_.size(); ++i) block_[i] = value(point.rank, i);
    select(0);
  }
  void select(int k) {
    point_.slot = static_cast<int>(slots_.index(k));
    point_.in = reinterpret_cast<float*>(slots_.in(k));
    point_.out = reinterpret_cast<float*>(slots_.out(k));
  }
  void rewrite() {
    // Only the root's input of a rooted move exists.
    const bool is_rooted = point_.kind == Kind::kBroadcast || point_.kind == Kind::kScatter;
    if (point_.kind == Kind::kBarrier || (is_rooted && point_.rank != 0)) return;
    unisono::perf::fill_repeating(
        reinterpret_cast<std::byte*>(point_.in), in_count(point_, collective_) * sizeof(float),
        reinterpret_cast<const std::byte*>(block_.data()), block_.size() * sizeof(float));
  }
  void run() { peer_.run(point_); }
  int slots() const { return slots_.count; }
  void sweep() { std::memset(slots_.base, 0, slots_.bytes()); }

  /// Runs once, untimed; wrong elements of this rank.
  std::size_t check(Lockstep& sync) {
    select(0);
    if (point_.kind == Kind::kBarrier) return 0;
    std::fill_n(point_.out, out_count(point_, collective_), -1.0f);
    rewrite();
    sync.barrier();
    run();
    const float* result = peer_.is_in_place() ? point_.in : point_.out;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < checked_count(point_, collective_); ++i) {
      wrong += result[i] != expected(point_, i);
    }
    return wrong;
  }

 private:
  Peer& peer_;
  const Collective& collective_;
  Point point_;
  const Slots& slots_;
  std::vector<float> block_;
};

inline constexpr const char* kHeader =
    "peer,transport,ranks,collective,mode,buffers,bytes,iterations,time_us_median,time_us_min,"
    "time_us_p99,time_us_loop,busbw_GBps,empty_us,round";

class Walk {
 public:
  Walk(const Arguments& arguments, Lockstep& sync, Peer& peer, std::byte* arena)
      : arguments_(arguments), sync_(sync), peer_(peer), arena_(arena) {
    std::memset(arena_, 0, arena_bytes(arguments));
  }

  /// Returns the exit status: 1 when a result was wrong. Every variant has the deadline for itself:
  /// a slow one must not hide the next.
  int run() {
    if (arguments_.busy_s > 0) return run_busy();
    empty_us_ = unisono::perf::measure_empty(sync_).median_us;
    for (const Collective& c : kCollectives) {
      if (!is_wanted(c)) continue;
      if (c.kind == Kind::kPingPong && sync_.ranks() != 2) continue;
      for (const std::string& variant : peer_.variants(c.kind)) {
        start_us_ = now_us();
        if (!run_sizes(c, variant)) tell_cut_short(c, variant);
      }
    }
    return finish();
  }

 private:
  bool is_wanted(const Collective& c) const {
    if (arguments_.collectives == "all") return true;
    const std::vector<std::string> names = split(arguments_.collectives);
    return std::find(names.begin(), names.end(), c.name) != names.end();
  }

  bool run_sizes(const Collective& c, const std::string& variant) {
    const std::vector<std::size_t> nothing{0};
    for (const std::size_t bytes : c.kind == Kind::kBarrier ? nothing : arguments_.sizes) {
      Point p{.kind = c.kind, .rank = sync_.rank(), .ranks = sync_.ranks()};
      p.count = bytes / sizeof(float);
      if (c.divides) {
        p.block = p.count / static_cast<std::size_t>(p.ranks);
        p.count = p.block * static_cast<std::size_t>(p.ranks);
      }
      if (p.count == 0 && c.kind != Kind::kBarrier) continue;
      for (const std::string& mode : arguments_.modes) {
        if (c.kind == Kind::kBarrier && mode == "cold") continue;
        if (is_out_of_time()) return false;
        run_point(c, variant, p, mode);
      }
    }
    return true;
  }

  void run_point(const Collective& c, const std::string& variant, const Point& p,
                 const std::string& mode) {
    const Slots slots = unisono::perf::make_slots(arena_, in_count(p, c) * sizeof(float),
                                                  out_count(p, c) * sizeof(float), mode == "cold",
                                                  unisono::perf::last_level_cache_bytes());
    Point first = p;
    first.in = reinterpret_cast<float*>(slots.in(0));
    first.out = reinterpret_cast<float*>(slots.out(0));
    if (!peer_.begin(first, variant, slots)) return;
    PointWork work(peer_, c, p, slots);
    const std::string transport = arguments_.transport + (variant.empty() ? "" : "/" + variant);
    if (arguments_.check) {
      if (const std::size_t wrong = work.check(sync_); wrong > 0) {
        std::fprintf(stderr, "WRONG %s %s %s ranks=%d rank=%d bytes=%zu: %zu elements\n",
                     arguments_.peer.c_str(), transport.c_str(), c.name, p.ranks, p.rank,
                     p.count * sizeof(float), wrong);
        ++failures_;
      }
    }
    const std::size_t bytes = p.count * sizeof(float);
    const Timing timing =
        unisono::perf::measure(sync_,
                               {.budget_us = arguments_.budget_ms * 1e3,
                                .iterations_min = bytes >= (std::size_t{16} << 20) ? 3 : 7},
                               work);
    if (sync_.rank() == 0) print(c, transport, mode, bytes, timing);
  }

  void print(const Collective& c, const std::string& transport, const std::string& mode,
             std::size_t bytes, const Timing& t) const {
    const double divisor = c.kind == Kind::kPingPong ? 2 : 1;  // one way of a round trip
    const double median = t.median_us / divisor;
    const double gbps = median > 0 ? static_cast<double>(bytes) / (median * 1e3) : 0;
    std::printf("%s,%s,%d,%s,%s,%s,%zu,%d,%.3f,%.3f,%.3f,%.3f,%.4f,%.3f,%d\n",
                arguments_.peer.c_str(), transport.c_str(), sync_.ranks(), c.name, mode.c_str(),
                arguments_.buffers.c_str(), bytes, t.iterations, median, t.min_us / divisor,
                t.p99_us / divisor, t.loop_us / divisor, gbps * bus_factor(c.kind, sync_.ranks()),
                empty_us_ / divisor, arguments_.round);
    std::fflush(stdout);
  }

  /// As many 4-byte all-reduces as fit the time, back to back: run.sh keeps a core busy meanwhile.
  int run_busy() {
    Point p{.kind = Kind::kAllReduce, .rank = sync_.rank(), .ranks = sync_.ranks(), .count = 1};
    const Slots slots = unisono::perf::make_slots(arena_, 4, 4, false, 0);
    p.in = reinterpret_cast<float*>(slots.in(0));
    p.out = reinterpret_cast<float*>(slots.out(0));
    const std::string variant = peer_.variants(p.kind).front();
    if (!peer_.begin(p, variant, slots)) return 1;
    std::atomic<std::uint64_t>& last = sync_.header().moment;  // 0: rank 0 has not decided yet
    peer_.run(p);
    sync_.barrier();
    const double start = now_us();
    std::uint64_t done = 0;
    for (; last.load() == 0 || done < last.load(); ++done) {
      // No rank can leave call `done` before rank 0 has entered it, so all see this in time.
      // The clock is read now and then: every call would set the ranks apart.
      if (sync_.rank() == 0 && done % 64 == 0 && last.load() == 0 &&
          now_us() - start > arguments_.busy_s * 1e6) {
        last.store(done + 1);
      }
      peer_.run(p);
    }
    Timing timing;
    timing.iterations = static_cast<int>(done);
    timing.min_us = timing.median_us = timing.p99_us = timing.loop_us =
        (now_us() - start) / static_cast<double>(done);
    if (sync_.rank() == 0) {
      print({Kind::kAllReduce, "all_reduce_busy", false, false, false}, arguments_.transport,
            arguments_.modes.front(), 4, timing);
    }
    return finish();
  }

  bool is_out_of_time() {
    return sync_.decide(now_us() - start_us_ > arguments_.deadline_s * 1e6 ? 1 : 0) != 0;
  }

  /// run.sh looks for the first two words.
  void tell_cut_short(const Collective& c, const std::string& variant) const {
    if (sync_.rank() != 0) return;
    std::fprintf(stderr, "CUT SHORT: %s %s%s%s %s ranks=%d: sizes are left after %.0f s\n",
                 arguments_.peer.c_str(), arguments_.transport.c_str(), variant.empty() ? "" : "/",
                 variant.c_str(), c.name, sync_.ranks(), arguments_.deadline_s);
  }

  int finish() {
    sync_.barrier();
    return failures_ > 0 ? 1 : 0;
  }

  const Arguments& arguments_;
  Lockstep& sync_;
  Peer& peer_;
  std::byte* arena_;
  double start_us_ = now_us(), empty_us_ = 0;
  int failures_ = 0;
};

}  // namespace bench
