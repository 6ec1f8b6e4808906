#include "native_ranks.h"

#include <sched.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <numeric>
#include <thread>

#include "base/collective.h"
#include "tests/support/give_way.h"
#include "tests/support/shared.h"

namespace unisono::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr std::size_t kReportBytes = 2000;

using Listeners = std::vector<std::unique_ptr<shm::LocalListener>>;

Listeners open_listeners(int n) {
  Listeners listeners;
  for (int i = 0; i < n; ++i) listeners.push_back(std::move(*shm::LocalListener::open()));
  return listeners;
}

void run_rank(TestRank& rank, const RanksOptions& options, Listeners& listeners,
              const std::vector<std::int64_t>& pids, const RankBody& body) {
  if (options.before_meeting) options.before_meeting(rank.self);
  shm::LocalPeers peers;
  peers.job_id = "native test";
  peers.self = rank.self;
  peers.pids = pids;
  peers.pids_hold.assign(pids.size(), options.pids_hold);
  peers.single_copy = options.single_copy;
  if (rank.self == 0) {
    peers.known = options.known;
    peers.measuring_max = options.measuring_max;
    peers.cores = options.cores == 0 ? rank.size : options.cores;
  }
  for (int i = 0; i < rank.size; ++i) {
    peers.world_ranks.push_back(i);
    peers.addresses.push_back(listeners[static_cast<std::size_t>(i)]->address());
    if (!options.knows_processes && i != rank.self) peers.pids[static_cast<std::size_t>(i)] = 0;
  }
  auto segment = shm::SharedSegment::open(*listeners[static_cast<std::size_t>(rank.self)], peers,
                                          Clock::now() + kPatience);
  rank.check(segment.has_value(), "meet: " + segment.status().message());
  if (!segment) return;
  rank.segment = *segment;
  std::vector<int> members(static_cast<std::size_t>(rank.size));
  std::iota(members.begin(), members.end(), 0);
  auto group = rank.segment->open_group(0, members);
  rank.check(group.has_value(), "open_group: " + group.status().message());
  if (!group) return;
  rank.group = std::make_unique<native::Group>(std::move(*group), options.levels);
  rank.access = options.access;
  body(rank);
  rank.group.reset();
  rank.segment.reset();
}

std::string label(const TestRank& rank, const std::string& failure) {
  return "rank " + std::to_string(rank.self) + " of " + std::to_string(rank.size) + ": " + failure;
}

/// What forked ranks share with the test.
struct Board {
  std::atomic<pid_t> pids[64];
  char reports[64][kReportBytes];
};

[[noreturn]] void run_child(int n, int self, Board& board, const RanksOptions& options,
                            Listeners& listeners, const RankBody& body) {
  std::vector<std::int64_t> pids;
  for (int i = 0; i < n; ++i) {
    while (board.pids[i].load() == 0) sched_yield();
    pids.push_back(board.pids[i].load());
  }
  TestRank rank;
  rank.size = n;
  rank.self = self;
  run_rank(rank, options, listeners, pids, body);
  for (const std::string& failure : rank.failures) {
    std::snprintf(board.reports[self], kReportBytes, "%s", failure.c_str());
    break;
  }
  _exit(rank.failures.empty() ? 0 : 1);
}

}  // namespace

void TestRank::check(bool condition, const std::string& claim) {
  if (!condition) failures.push_back(claim);
}

Operation& TestRank::start(const Call& call, const compute::Reduction* reduction) {
  CallRecord record;
  record.collective = static_cast<std::uint8_t>(call.collective);
  record.history = ++sequence;
  if (reduction != nullptr) {
    record.type = static_cast<std::uint8_t>(reduction->type());
    record.op = static_cast<std::uint8_t>(reduction->op().kind);
  }
  record.count = facts_of(call.collective).is_uneven ? 0 : call.count;
  return group->start({call, record, reduction, access});
}

Status TestRank::finish(Operation& operation) {
  const TimePoint deadline = Clock::now() + kPatience;
  while (!operation.advance()) {
    give_way();
    if (on_stall) on_stall(operation);
    Rank failed_rank = -1;
    if (const ErrorCode code = group->raised(&failed_rank); code != ErrorCode::kOk) {
      operation.fail(Status(code, "raised by a member", failed_rank));
    } else if (Clock::now() > deadline) {
      std::vector<Rank> ranks;
      operation.waiting_for(&ranks);
      std::string names;
      for (const Rank rank : ranks) names += " " + std::to_string(rank);
      operation.fail(Status(ErrorCode::kTimeout, "waiting for" + names));
    }
  }
  return operation.status();
}

Status TestRank::run(const Call& call, const compute::Reduction* reduction) {
  return finish(start(call, reduction));
}

std::vector<std::string> run_threads(int n, const RanksOptions& options, const RankBody& body) {
  Listeners listeners = open_listeners(n);
  const std::vector<std::int64_t> pids(static_cast<std::size_t>(n), getpid());
  std::vector<TestRank> ranks(static_cast<std::size_t>(n));
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) {
    TestRank& rank = ranks[static_cast<std::size_t>(i)];
    rank.size = n;
    rank.self = i;
    threads.emplace_back([&] { run_rank(rank, options, listeners, pids, body); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> failures;
  for (const TestRank& rank : ranks) {
    for (const std::string& failure : rank.failures) failures.push_back(label(rank, failure));
  }
  return failures;
}

std::vector<std::string> run_processes(int n, const RanksOptions& options, const RankBody& body) {
  Shared<Board> board;
  Listeners listeners = open_listeners(n);
  for (int i = 0; i < n; ++i) {
    const pid_t pid = fork();
    if (pid < 0) return {"fork"};
    if (pid == 0) run_child(n, i, *board, options, listeners, body);
    board->pids[i].store(pid);
  }
  std::vector<std::string> failures;
  for (int i = 0; i < n; ++i) {
    int status = 0;
    waitpid(board->pids[i].load(), &status, 0);
    if (status != 0) {
      failures.push_back("rank " + std::to_string(i) + " of " + std::to_string(n) + ", status " +
                         std::to_string(status) + ": " + board->reports[i]);
    }
  }
  return failures;
}

bool processes_read_each_other() {
  // One child reads another, as ranks do; what the library finds out is what the tests look at.
  static const bool can = [] {
    static const int word = 1;
    const pid_t read = fork();
    if (read == 0) {
      for (;;) pause();
    }
    const pid_t reader = fork();
    if (reader == 0) {
      int seen = 0;
      const iovec local{&seen, sizeof seen};
      const iovec remote{const_cast<int*>(&word), sizeof word};
      _exit(process_vm_readv(read, &local, 1, &remote, 1, 0) == sizeof seen && seen == word ? 0
                                                                                            : 1);
    }
    int status = 1;
    waitpid(reader, &status, 0);
    kill(read, SIGKILL);
    waitpid(read, nullptr, 0);
    return status == 0;
  }();
  return can;
}

}  // namespace unisono::test
