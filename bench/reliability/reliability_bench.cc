// What the ranks of a job see of the failure of one of them. A trial is a job of processes in which
// one is killed or stopped at a random moment of a call: each survivor says whom the error names,
// when it came, whether it went on with the others, and what it had left open at its end.
// bench/reliability/run.py runs many of these.
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/unisono.hpp"

namespace {

using namespace unisono;

constexpr int kRanksMax = 64;
// These may hold the arbiter, which stays until the others are gone.
constexpr Rank kHolderMax = 3;
// Whoever has not ended by then hangs.
constexpr std::int64_t kTrialNs = 60'000'000'000;
constexpr std::int64_t kDelayUsMax = 20'000;

struct Options {
  std::string transport = "auto";
  std::string fault = "kill";
  std::string collective = "all_reduce";
  std::size_t count = 50'000;
  int ranks = 4;
  int trials = 1;
  int first_victim = 0;  // of the first trial; the next rank is that of the next one
  std::uint64_t seed = 1;
};

struct Survivor {
  int code = 0;
  int named = -1;
  std::int64_t told_ns = 0;
  std::int64_t went_on_ns = 0;  // the first call with the others was over and right
  int members = 0;
  int open_files = 0;  // more at the end than at the start
  int threads = 0;
  char message[240] = {};
};

// What the processes of a trial share.
struct Board {
  std::atomic<pid_t> pids[kRanksMax];
  std::atomic<int> entered{0};
  std::atomic<int> over{0};
  std::atomic<std::int64_t> struck_ns{0};
  Survivor survivors[kRanksMax];
};

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

int entries_of(const char* folder) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder),
                                        std::filesystem::directory_iterator()));
}

// Buffers for any collective of float.
class AnyCall {
 public:
  AnyCall(const Options& options, int ranks)
      : in_(options.count * static_cast<std::size_t>(ranks), 1.0F),
        out_(in_.size()),
        counts_(static_cast<std::size_t>(ranks), options.count) {
    if (!parse(options.collective, &call_.collective)) {
      throw std::runtime_error("there is no collective " + options.collective);
    }
    call_.in = in_.data();
    call_.out = out_.data();
    call_.count = options.count;
    call_.type = DataType::kFloat32;
    call_.op = ops::sum;
    call_.in_counts = counts_;
    call_.out_counts = counts_;
  }
  AnyCall(const AnyCall&) = delete;

  void run(Communicator& comm) {
    if (call_.collective == Collective::kSend || call_.collective == Collective::kReceive) {
      const Rank next = (comm.rank() + 1) % comm.size();
      const Rank previous = (comm.rank() + comm.size() - 1) % comm.size();
      comm.send_receive(in_.data(), call_.count, next, out_.data(), call_.count, previous,
                        call_.type);
    } else {
      comm.run(call_);
    }
  }

 private:
  std::vector<float> in_, out_;
  std::vector<std::size_t> counts_;
  Call call_;
};

void go_on(Communicator& comm, Survivor& survivor) {
  Communicator left = comm.shrink(std::chrono::seconds(20));
  comm.close();
  std::vector<float> data(1000, 1.0F);
  left.all_reduce(data, ops::sum);
  const auto expected = static_cast<float>(left.size());
  if (std::count(data.begin(), data.end(), expected) != 1000) return;
  survivor.went_on_ns = now_ns();
  survivor.members = left.size();
  left.close();
}

void live(Board& board, const Options& options, Rank victim, Survivor& survivor) {
  Communicator comm = init();
  AnyCall call(options, options.ranks);
  comm.barrier();
  ++board.entered;
  try {
    for (;;) call.run(comm);
  } catch (const Error& error) {
    survivor.told_ns = now_ns();
    survivor.code = static_cast<int>(error.code());
    survivor.named = error.rank();
    std::strncpy(survivor.message, error.what(), sizeof survivor.message - 1);
  }
  if (comm.rank() == victim) return;  // was stopped, and goes on
  try {
    go_on(comm, survivor);
  } catch (const Error& error) {
    std::strncpy(survivor.message, error.what(), sizeof survivor.message - 1);
  }
}

void set_rank(int rank, const Options& options, const std::string& job) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
    setenv(name, std::to_string(options.ranks).c_str(), 1);
  }
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "29500", 1);
  setenv("TORCHELASTIC_RUN_ID", job.c_str(), 1);
  setenv("UNISONO_TRANSPORT", options.transport.c_str(), 1);
  setenv("UNISONO_LOG", "error", 0);
}

[[noreturn]] void run_rank(Board& board, const Options& options, Rank rank, Rank victim,
                           const std::string& job) {
  set_rank(rank, options, job);
  Survivor& survivor = board.survivors[rank];
  const int files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  try {
    live(board, options, victim, survivor);
  } catch (const std::exception& error) {
    std::strncpy(survivor.message, error.what(), sizeof survivor.message - 1);
  }
  // A thread that was joined is listed a moment longer.
  for (int looks = 0; looks < 100 && entries_of("/proc/self/task") > threads; ++looks) usleep(1000);
  survivor.open_files = entries_of("/proc/self/fd") - files;
  survivor.threads = entries_of("/proc/self/task") - threads;
  ++board.over;
  std::exit(0);
}

bool await(const std::atomic<int>& what, int value) {
  for (const std::int64_t until = now_ns() + kTrialNs; what < value; usleep(200)) {
    if (now_ns() > until) return false;
  }
  return true;
}

// Infinite where it has not happened.
double ms_since(std::int64_t struck_ns, std::int64_t ns) {
  return ns == 0 ? std::numeric_limits<double>::infinity()
                 : static_cast<double>(ns - struck_ns) / 1e6;
}

// One line of CSV: the worst of the survivors, and how many saw what they should.
void report(Board& board, const Options& options, Rank victim, std::int64_t delay_us, bool hung) {
  double told_ms = 0, on_ms = 0;
  int named = 0, same = 0, went_on = 0, files = 0, threads = 0;
  const Survivor& first = board.survivors[victim == 0 ? 1 : 0];
  const char* oddity = "";
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const Survivor& each = board.survivors[rank];
    if (rank == victim) continue;
    const bool is_right = each.named == victim;
    const bool has_gone_on = each.members == options.ranks - 1;
    named += is_right;
    same += each.named == first.named && each.code == first.code;
    went_on += has_gone_on;
    if (!is_right || !has_gone_on) oddity = each.message;
    told_ms = std::max(told_ms, ms_since(board.struck_ns, each.told_ns));
    on_ms = std::max(on_ms, ms_since(board.struck_ns, each.went_on_ns));
    if (rank <= kHolderMax) continue;
    files = std::max(files, each.open_files);
    threads = std::max(threads, each.threads);
  }
  std::string text(oddity);
  std::replace(text.begin(), text.end(), ',', ';');
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::printf("%s,%s,%s,%zu,%d,%d,%lld,%d,%.2f,%.2f,%d,%d,%d,%d,%d,%s\n", options.fault.c_str(),
              options.transport.c_str(), options.collective.c_str(), options.count, options.ranks,
              victim, static_cast<long long>(delay_us), options.ranks - 1, told_ms, on_ms, named,
              same, went_on, std::max(files, threads), static_cast<int>(hung), text.c_str());
  std::fflush(stdout);
}

void run_trial(const Options& options, Rank victim, std::int64_t delay_us, int number) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory");
  Board& board = *new (memory) Board;
  const std::string job = std::to_string(getpid()) + "-" + std::to_string(number);
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("no process");
    if (pid == 0) run_rank(board, options, rank, victim, job);
    board.pids[rank] = pid;
  }
  bool hung = !await(board.entered, options.ranks);
  usleep(static_cast<useconds_t>(delay_us));
  board.struck_ns = now_ns();
  kill(board.pids[victim], options.fault == "stop" ? SIGSTOP : SIGKILL);
  hung = !await(board.over, options.ranks - 1) || hung;
  for (Rank rank = 0; rank < options.ranks; ++rank) kill(board.pids[rank], SIGKILL);
  for (Rank rank = 0; rank < options.ranks; ++rank) waitpid(board.pids[rank], nullptr, 0);
  report(board, options, victim, delay_us, hung);
  munmap(memory, sizeof(Board));
}

constexpr const char* kHelp =
    "reliability_bench [--transport T] [--fault kill|stop] [--collective C] [--count N]\n"
    "                  [--ranks N] [--trials N] [--first-victim R] [--seed S]\n"
    "Kills or stops one rank of a job at a random moment of its calls, and writes a line of CSV\n"
    "for each trial: fault, transport, collective, elements, ranks, victim, delay in us,\n"
    "survivors, ms until the last one was told, ms until the last one had gone on, how many named\n"
    "the victim, how many said the same, how many went on, descriptors and threads left, hung, "
    "and\n"
    "what an odd survivor said.\n";

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--help" || i + 1 == argc) {
      std::fputs(kHelp, name == "--help" ? stdout : stderr);
      std::exit(name == "--help" ? 0 : 2);
    }
    const std::string value = argv[i + 1];
    if (name == "--transport") {
      options.transport = value;
    } else if (name == "--fault") {
      options.fault = value;
    } else if (name == "--collective") {
      options.collective = value;
    } else if (name == "--count") {
      options.count = std::stoull(value);
    } else if (name == "--ranks") {
      options.ranks = std::clamp(std::stoi(value), 2, kRanksMax);
    } else if (name == "--trials") {
      options.trials = std::stoi(value);
    } else if (name == "--first-victim") {
      options.first_victim = std::stoi(value);
    } else if (name == "--seed") {
      options.seed = std::stoull(value);
    } else {
      throw std::runtime_error("there is no option " + std::string(name));
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse_options(argc, argv);
  std::mt19937_64 random(options.seed);
  for (int trial = 0; trial < options.trials; ++trial) {
    // Rank 0 as often as any other.
    const Rank victim = (options.first_victim + trial) % options.ranks;
    run_trial(options, victim, static_cast<std::int64_t>(random() % kDelayUsMax), trial);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "reliability_bench: %s\n", error.what());
  return 1;
}
