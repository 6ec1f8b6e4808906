#include "tools/tune/measure.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "tools/common/environment.h"
#include "tools/common/sizes.h"
#include "unisono/communicator.h"

namespace unisono::tune {
namespace {

constexpr int kRounds = 5;
constexpr int kIterationsMax = 2000;
// A call that takes longer is as well known after two rounds.
constexpr double kSlowSeconds = 0.1;

// What rank 0 finds out and the parent reads.
class SharedSeconds {
 public:
  explicit SharedSeconds(std::size_t count) : bytes_(count * sizeof(double)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    seconds_ = static_cast<double*>(memory);
    std::fill_n(seconds_, count, kNever);
  }
  ~SharedSeconds() {
    if (seconds_ != nullptr) munmap(seconds_, bytes_);
  }
  SharedSeconds(const SharedSeconds&) = delete;
  double* get() const { return seconds_; }

 private:
  std::size_t bytes_;
  double* seconds_ = nullptr;
};

Call call_of(const Task& task, int ranks, std::byte* in, std::byte* out) {
  const std::size_t blocks =
      has_block_per_rank(task.collective) ? static_cast<std::size_t>(ranks) : 1;
  Call call;
  call.collective = task.collective;
  call.type = DataType::kFloat32;
  call.op = sum;
  call.options.algorithm = task.algorithm;
  if (task.collective == Collective::kBarrier) return call;
  call.in = in;
  call.out = task.collective == Collective::kBroadcast ? in : out;
  call.count = std::max<std::size_t>(task.bytes / size_of(call.type) / blocks, 1);
  return call;
}

// Back to back, slowest rank, best round: what selection should minimise.
double time_call(Communicator& comm, const Call& call, double budget_seconds) {
  comm.run(call);
  double best = kNever;
  int iterations = 1;
  for (int round = 0; round < kRounds; ++round) {
    comm.barrier();
    const TimePoint began = Clock::now();
    for (int i = 0; i < iterations; ++i) comm.run(call);
    double seconds = std::chrono::duration<double>(Clock::now() - began).count() / iterations;
    comm.all_reduce(&seconds, &seconds, 1, DataType::kFloat64, max);
    best = std::min(best, seconds);
    if (round == 1 && best > kSlowSeconds) break;
    iterations = std::clamp(static_cast<int>(budget_seconds / kRounds / std::max(seconds, 1e-7)), 1,
                            kIterationsMax);
  }
  return best;
}

void run_rank(Communicator& comm, std::span<const Task> tasks, std::size_t first,
              const MeasureOptions& options, double* seconds) {
  std::size_t bytes_max = 0;
  for (const Task& task : tasks) bytes_max = std::max(bytes_max, task.bytes);
  // A size that no block fits in evenly is rounded up to one element for each rank.
  bytes_max += sizeof(float) * static_cast<std::size_t>(comm.size());
  std::vector<std::byte> in(bytes_max);
  std::vector<std::byte> out(bytes_max);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (comm.rank() == 0) {
      options.progress(first + i, std::string(algorithms::name_of(tasks[i].link)) + " " +
                                      std::string(name_of(tasks[i].collective)) + " " +
                                      tools::format_bytes(tasks[i].bytes) + " " +
                                      tasks[i].algorithm);
    }
    const Call call = call_of(tasks[i], comm.size(), in.data(), out.data());
    const double measured = time_call(comm, call, options.seconds_per_task);
    if (comm.rank() == 0) seconds[i] = measured;
  }
  if (comm.rank() == 0) options.progress_ends();
}

bool same_start(const Task& a, const Task& b) { return a.link == b.link && a.path == b.path; }

}  // namespace

Status measure(std::span<Task> tasks, const MeasureOptions& options) {
  // The settings that a table replaces must not decide what is measured for it.
  for (const char* name : {"UNISONO_TUNING", "UNISONO_ALGORITHM", "UNISONO_TRANSPORT"}) {
    tools::remove_from_environment(name);
  }
  const SharedSeconds shared(tasks.size());
  if (shared.get() == nullptr) {
    return Status(ErrorCode::kSystem, std::string("mmap: ") + std::strerror(errno));
  }
  for (std::size_t first = 0; first < tasks.size();) {
    std::size_t last = first + 1;
    while (last < tasks.size() && same_start(tasks[first], tasks[last])) ++last;
    tools::set_in_environment("UNISONO_ACCESS", std::string(name_of(tasks[first].path)));
    try {
      spawn(options.ranks,
            [&](Communicator& comm) {
              run_rank(comm, tasks.subspan(first, last - first), first, options,
                       shared.get() + first);
            },
            {.as = SpawnOptions::As::kProcesses,
             .transport = std::string(algorithms::name_of(tasks[first].link))});
    } catch (const Error& error) {
      return error.status();
    }
    first = last;
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i].seconds = shared.get()[i];
  return Status();
}

}  // namespace unisono::tune
