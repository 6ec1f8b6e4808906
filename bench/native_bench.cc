// Times the native collectives alone, without communicator and engine: n forked processes, pinned
// while there are cores, a barrier before each iteration, the slowest rank counts, median.
//
//   native_bench [--ranks 2] [--collective all_reduce] [--min 4] [--max 64M]
//                [--access auto|window|single_copy|mapped|streamed] [--heap] [--cold]
//                [--budget-ms 200]
//
// hot: the same buffers again, the input rewritten before each iteration. cold: buffers rotate over
// 128 MiB. --heap takes the buffers from the shared heap.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/collective.h"
#include "native/native.h"
#include "transports/shm/segment_group.h"

namespace {

using namespace unisono;

constexpr int kIterationsMax = 20000;
constexpr int kRanksMax = 64;
constexpr std::size_t kColdBytes = std::size_t{128} << 20;

struct Options {
  int ranks = 2;
  Collective collective = Collective::kAllReduce;
  std::size_t min = 4, max = std::size_t{64} << 20;
  AccessPath access = AccessPath::kAutomatic;
  bool heap = false, cold = false;
  double budget_us = 200e3;
};

/// The bench's own barrier and results, shared by the processes.
struct Shared {
  alignas(128) std::atomic<std::uint64_t> arrived[kRanksMax][16];
  alignas(128) std::atomic<int> iterations;
  double times[kRanksMax][kIterationsMax];
};

double now_us() {
  return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
}

std::size_t parse_bytes(const char* text) {
  char* end = nullptr;
  const std::size_t value = std::strtoull(text, &end, 10);
  return *end == 'K' ? value << 10 : *end == 'M' ? value << 20 : *end == 'G' ? value << 30 : value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (name == "--ranks")
      options.ranks = std::clamp(std::atoi(value()), 1, kRanksMax);
    else if (name == "--collective")
      parse(std::string_view(value()), &options.collective);
    else if (name == "--min")
      options.min = parse_bytes(value());
    else if (name == "--max")
      options.max = parse_bytes(value());
    else if (name == "--budget-ms")
      options.budget_us = std::atof(value()) * 1e3;
    else if (name == "--heap")
      options.heap = true;
    else if (name == "--cold")
      options.cold = true;
    else if (name == "--access") {
      parse(std::string_view(value()), &options.access);
    } else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      std::exit(2);
    }
  }
  return options;
}

class Bench {
 public:
  Bench(const Options& options, Shared* shared, int rank,
        std::shared_ptr<shm::SharedSegment> segment)
      : options_(options),
        shared_(shared),
        rank_(rank),
        shared_segment_(std::move(segment)),
        yields_(options.ranks > sysconf(_SC_NPROCESSORS_ONLN)) {
    std::vector<int> members;
    for (int i = 0; i < options.ranks; ++i) members.push_back(i);
    group_ = std::make_unique<native::Group>(std::move(*shared_segment_->open_group(0, members)));
  }

  void run() {
    if (rank_ == 0) {
      std::printf("# %s, %d ranks, %s, %s\n%10s %10s %10s %10s %10s\n",
                  std::string(name_of(options_.collective)).c_str(), options_.ranks,
                  options_.heap ? "heap" : "private", options_.cold ? "cold" : "hot", "bytes",
                  "median us", "min us", "loop us", "iterations");
    }
    for (std::size_t bytes = options_.min; bytes <= options_.max; bytes *= 4) measure(bytes);
  }

 private:
  void barrier() {
    shared_->arrived[rank_][0].store(++phase_, std::memory_order_release);
    for (int i = 0; i < options_.ranks; ++i) {
      while (shared_->arrived[i][0].load(std::memory_order_acquire) < phase_) {
        if (yields_) sched_yield();
      }
    }
  }

  float* take(std::size_t bytes) {
    void* memory = options_.heap ? *shared_segment_->allocate(bytes)
                                 : std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    std::memset(memory, 0, bytes);
    return static_cast<float*>(memory);
  }
  void give_back(float* memory) {
    if (!options_.heap) return std::free(memory);
    if (!shared_segment_->release(memory)) std::abort();
  }

  void call(std::size_t bytes, int pair) {
    const auto n = static_cast<std::size_t>(options_.ranks);
    const std::size_t total = bytes / sizeof(float);
    const CollectiveFacts& facts = facts_of(options_.collective);
    float* const input = inputs_[static_cast<std::size_t>(pair)];
    const bool is_one_buffer = facts.in_place == InPlace::kAlways;
    const Call asked{.collective = options_.collective,
                     .in = input,
                     .out = is_one_buffer ? input : outputs_[static_cast<std::size_t>(pair)],
                     .count = facts.has_blocks() ? total / n : total,
                     .type = DataType::kFloat32};
    CallRecord record;
    record.collective = static_cast<std::uint8_t>(options_.collective);
    record.count = asked.count;
    record.history = ++sequence_;
    Operation& operation = group_->start({asked, record, &*reduction_, options_.access});
    while (!operation.advance()) {
      if (yields_) sched_yield();
    }
    if (!operation.status()) {
      std::fprintf(stderr, "%s\n", operation.status().message().c_str());
      _exit(1);
    }
  }

  double timed(std::size_t bytes, int iteration, int pairs) {
    const int pair = iteration % pairs;
    float* const input = inputs_[static_cast<std::size_t>(pair)];
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i)
      input[i] = static_cast<float>(rank_ + 1);
    barrier();
    const double begin = now_us();
    call(bytes, pair);
    return now_us() - begin;
  }

  void measure(std::size_t bytes) {
    const std::size_t room = std::max<std::size_t>(bytes, 64);
    const int pairs =
        options_.cold ? static_cast<int>(std::clamp<std::size_t>(kColdBytes / (2 * room), 1, 512))
                      : 1;
    for (int i = 0; i < pairs; ++i) {
      inputs_.push_back(take(room));
      outputs_.push_back(take(room));
    }
    double estimate = 0;
    for (int i = 0; i < 5; ++i) estimate = timed(bytes, i, pairs);
    if (rank_ == 0) {
      const double fit = options_.budget_us / (2 * estimate + 1);
      shared_->iterations = std::clamp(static_cast<int>(fit), 7, kIterationsMax);
    }
    barrier();
    const int iterations = shared_->iterations;
    for (int i = 0; i < iterations; ++i) shared_->times[rank_][i] = timed(bytes, i, pairs);
    barrier();
    const double begin = now_us();
    for (int i = 0; i < iterations; ++i) call(bytes, i % pairs);
    const double loop = (now_us() - begin) / iterations;
    check(bytes);
    if (rank_ == 0) print(bytes, iterations, loop);
    barrier();
    for (int i = 0; i < pairs; ++i) {
      give_back(inputs_[static_cast<std::size_t>(i)]);
      give_back(outputs_[static_cast<std::size_t>(i)]);
    }
    inputs_.clear();
    outputs_.clear();
  }

  // A wrong sum makes every figure worthless.
  void check(std::size_t bytes) const {
    if (options_.collective != Collective::kAllReduce) return;
    const float expected = static_cast<float>(options_.ranks * (options_.ranks + 1) / 2);
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
      if (outputs_[0][i] != expected) {
        std::fprintf(stderr, "rank %d: element %zu is %g, not %g\n", rank_, i,
                     static_cast<double>(outputs_[0][i]), static_cast<double>(expected));
        _exit(1);
      }
    }
  }

  void print(std::size_t bytes, int iterations, double loop) {
    std::vector<double> slowest;
    for (int i = 0; i < iterations; ++i) {
      double worst = 0;
      for (int r = 0; r < options_.ranks; ++r) worst = std::max(worst, shared_->times[r][i]);
      slowest.push_back(worst);
    }
    std::sort(slowest.begin(), slowest.end());
    std::printf("%10zu %10.3f %10.3f %10.3f %10d\n", bytes, slowest[slowest.size() / 2], slowest[0],
                loop, iterations);
    std::fflush(stdout);
  }

  const Options& options_;
  Shared* shared_;
  int rank_;
  std::shared_ptr<shm::SharedSegment> shared_segment_;
  bool yields_;
  std::unique_ptr<native::Group> group_;
  std::uint64_t phase_ = 0;
  std::uint32_t sequence_ = 0;
  std::vector<float*> inputs_, outputs_;
  Result<compute::Reduction> reduction_ = compute::Reduction::make(DataType::kFloat32, ops::sum, 2);
};

void run_rank(const Options& options, Shared* shared, int rank,
              std::vector<std::unique_ptr<shm::LocalListener>>& listeners, const pid_t* pids) {
  if (options.ranks <= sysconf(_SC_NPROCESSORS_ONLN)) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank, &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  shm::LocalPeers peers;
  peers.job_id = "native_bench";
  peers.self = rank;
  for (int i = 0; i < options.ranks; ++i) {
    peers.world_ranks.push_back(i);
    peers.pids.push_back(pids[i]);
    peers.addresses.push_back(listeners[static_cast<std::size_t>(i)]->address());
  }
  auto segment = shm::SharedSegment::open(*listeners[static_cast<std::size_t>(rank)], peers,
                                          Clock::now() + std::chrono::seconds(10));
  if (!segment) {
    std::fprintf(stderr, "rank %d: %s\n", rank, segment.error().message().c_str());
    _exit(1);
  }
  Bench(options, shared, rank, *segment).run();
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  void* pid_memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || pid_memory == MAP_FAILED) return 1;
  auto* const shared = new (memory) Shared;
  auto* const pids = static_cast<std::atomic<pid_t>*>(pid_memory);
  std::vector<std::unique_ptr<shm::LocalListener>> listeners;
  for (int i = 0; i < options.ranks; ++i)
    listeners.push_back(std::move(*shm::LocalListener::open()));
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = fork();
    if (pid != 0) {
      pids[rank] = pid;
      continue;
    }
    std::vector<pid_t> all;
    for (int i = 0; i < options.ranks; ++i) {
      while (pids[i] == 0) sched_yield();
      all.push_back(pids[i].load());
    }
    run_rank(options, shared, rank, listeners, all.data());
    _exit(0);
  }
  int failures = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    int status = 0;
    wait(&status);
    if (status != 0) ++failures;
  }
  return failures == 0 ? 0 : 1;
}
