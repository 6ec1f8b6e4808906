#include "tools/tune/measure.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/collective.h"
#include "tools/common/environment.h"
#include "tools/common/sizes.h"
#include "unisono/communicator.h"

namespace unisono::tune {
namespace {

// Short rounds: some then fall between two things that the machine does for others.
constexpr int kRounds = 20;
constexpr int kRoundsMin = 3;
constexpr int kIterationsMax = 10'000;

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
  const CollectiveFacts& facts = facts_of(task.collective);
  const std::size_t blocks = facts.has_blocks() ? static_cast<std::size_t>(ranks) : 1;
  Call call;
  call.collective = task.collective;
  call.type = DataType::kFloat32;
  call.op = ops::sum;
  call.options.algorithm = task.algorithm;
  if (!facts.has_buffers()) return call;
  call.in = in;
  call.out = facts.in_place == InPlace::kAlways ? in : out;
  call.count = std::max<std::size_t>(task.bytes / size_of(call.type) / blocks, 1);
  return call;
}

// The ways to run one collective of one size, in turns: what disturbs the machine for a while then
// does not single one of them out.
class Contest {
 public:
  Contest(Communicator& comm, std::span<const Task> tasks, double budget_seconds, std::byte* in,
          std::byte* out)
      : comm_(comm), budget_seconds_(budget_seconds) {
    for (const Task& task : tasks) ways_.push_back({call_of(task, comm.size(), in, out)});
  }

  /// Seconds of one call: back to back, of the slowest rank, in the best round.
  void run(double* seconds) {
    for (Way& way : ways_) comm_.run(way.call);
    for (int round = 0; round < kRounds; ++round) {
      for (Way& way : ways_) {
        if (round < kRoundsMin || way.spent < budget_seconds_) time(way);
      }
    }
    for (const Way& way : ways_) *seconds++ = way.best;
  }

 private:
  struct Way {
    Call call;
    int iterations = 1;
    double best = kNever;
    double spent = 0;
  };

  void time(Way& way) {
    comm_.barrier();
    const TimePoint began = Clock::now();
    for (int i = 0; i < way.iterations; ++i) comm_.run(way.call);
    double seconds = std::chrono::duration<double>(Clock::now() - began).count() / way.iterations;
    comm_.all_reduce(&seconds, &seconds, 1, DataType::kFloat64, ops::max);
    way.best = std::min(way.best, seconds);
    way.spent += seconds * way.iterations;
    // The first round is of one call, and only says how many fit into the others.
    way.iterations =
        std::clamp(static_cast<int>(budget_seconds_ / (kRounds - 1) / std::max(seconds, 1e-7)), 1,
                   kIterationsMax);
  }

  Communicator& comm_;
  const double budget_seconds_;
  std::vector<Way> ways_;
};

bool same_size(const Task& a, const Task& b) {
  return a.collective == b.collective && a.bytes == b.bytes;
}

void measure_tasks(Communicator& comm, std::span<const Task> tasks, std::size_t offset,
                   const MeasureOptions& options, double* seconds) {
  std::size_t bytes_max = 0;
  for (const Task& task : tasks) bytes_max = std::max(bytes_max, task.bytes);
  // A size that no block fits in evenly is rounded up to one element for each rank.
  bytes_max += sizeof(float) * static_cast<std::size_t>(comm.size());
  std::vector<std::byte> in(bytes_max);
  std::vector<std::byte> out(bytes_max);
  std::vector<double> measured(tasks.size());
  for (std::size_t first = 0; first < tasks.size();) {
    std::size_t last = first + 1;
    while (last < tasks.size() && same_size(tasks[first], tasks[last])) ++last;
    if (comm.rank() == 0) {
      options.progress(offset + first, std::string(algorithms::name_of(tasks[first].link)) + " " +
                                           std::string(name_of(tasks[first].collective)) + " " +
                                           tools::format_bytes(tasks[first].bytes));
    }
    Contest contest(comm, tasks.subspan(first, last - first), options.seconds_per_task, in.data(),
                    out.data());
    contest.run(measured.data() + first);
    first = last;
  }
  if (comm.rank() == 0) std::copy(measured.begin(), measured.end(), seconds);
}

// What a rank says of its failure comes behind its last line of progress.
void run_rank(Communicator& comm, std::span<const Task> tasks, std::size_t offset,
              const MeasureOptions& options, double* seconds) {
  const auto end_progress = [&] {
    if (comm.rank() == 0) options.progress_ends();
  };
  try {
    measure_tasks(comm, tasks, offset, options, seconds);
  } catch (...) {
    end_progress();
    throw;
  }
  end_progress();
}

}  // namespace

Status measure(std::span<Task> tasks, const MeasureOptions& options) {
  // The settings that a table replaces must not decide what is measured for it.
  for (const char* name : {"UNISONO_TUNING", "UNISONO_ALGORITHM", "UNISONO_TRANSPORT",
                           "UNISONO_ACCESS", "UNISONO_ORDER"}) {
    tools::remove_from_environment(name);
  }
  const SharedSeconds shared(tasks.size());
  if (shared.get() == nullptr) {
    return Status(ErrorCode::kSystem, std::string("mmap: ") + std::strerror(errno));
  }
  Status failed;
  for (std::size_t first = 0; first < tasks.size();) {
    std::size_t last = first + 1;
    while (last < tasks.size() && tasks[first].link == tasks[last].link) ++last;
    const std::string transport(algorithms::name_of(tasks[first].link));
    try {
      spawn(options.ranks,
            [&](Communicator& comm) {
              run_rank(comm, tasks.subspan(first, last - first), first, options,
                       shared.get() + first);
            },
            {.as = SpawnOptions::As::kProcesses, .transport = transport});
    } catch (const Error& error) {
      const std::string before = failed.ok() ? "" : failed.message() + "; ";
      failed =
          Status(error.code(), before + "transport " + transport + ": " + error.status().message());
    }
    first = last;
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i].seconds = shared.get()[i];
  return failed;
}

}  // namespace unisono::tune
