// Ranks as threads, or as forked processes, of the calling program.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

#include "base/handshake.h"
#include "comm/communicator_state.h"
#include "comm/init.h"
#include "rendezvous/arbiter_server.h"

namespace unisono {
namespace {

RuntimeOptions rank_options(const Config& config, const std::string& name, int rank, int size) {
  RuntimeOptions options;
  options.config = config;
  options.meeting.kind = size == 1 ? MeetingPoint::Kind::kAlone : MeetingPoint::Kind::kAbstract;
  options.meeting.name = name;
  options.rank = rank;
  options.size = options.local_size = size;
  options.deadline = Clock::now() + config.timeout;
  return options;
}

void run_rank(const Config& config, const std::string& name, int rank, int size,
              const std::function<void(Communicator&)>& body) {
  Communicator world = join_job(rank_options(config, name, rank, size));
  try {
    body(world);
  } catch (const std::exception& failure) {
    // The others must not wait for a rank that has given up.
    world.abort("rank " + std::to_string(rank) + " threw: " + failure.what());
    throw;
  }
}

void run_threads(const Config& config, const std::string& name, int n,
                 const std::function<void(Communicator&)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(n));
  std::atomic<int> first{-1};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_rank(config, name, rank, n, body);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
        int none = -1;
        first.compare_exchange_strong(none, rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first.load() >= 0) std::rethrow_exception(failures[static_cast<std::size_t>(first.load())]);
}

[[noreturn]] void run_child(const Config& config, const std::string& name, int rank, int n,
                            const std::function<void(Communicator&)>& body) {
  int status = 0;
  try {
    run_rank(config, name, rank, n, body);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", rank, failure.what());
    status = 1;
  } catch (...) {
    status = 1;
  }
  std::fflush(nullptr);
  rendezvous::end_arbiters();
  _exit(status);
}

void run_processes(const Config& config, const std::string& name, int n,
                   const std::function<void(Communicator&)>& body) {
  if (Runtime::alive() > 0) {
    throw Error(Status(ErrorCode::kInvalidArgument,
                       "spawn() as processes forks, which is not possible once this process is "
                       "part of a job; call it before init()"),
                {.operation = "spawn"});
  }
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < n; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(config, name, rank, n, body);
    if (child < 0) {
      for (const pid_t started : children) kill(started, SIGKILL);
      for (const pid_t started : children) waitpid(started, nullptr, 0);
      throw Error(
          Status(ErrorCode::kSystem, "fork() of rank " + std::to_string(rank) + " failed", rank),
          {.operation = "spawn"});
    }
    children.push_back(child);
  }
  Status first;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    const auto found = std::find(children.begin(), children.end(), child);
    if (found == children.end() || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
    const auto rank = static_cast<Rank>(found - children.begin());
    const std::string how = WIFSIGNALED(status)
                                ? "was killed by signal " + std::to_string(WTERMSIG(status))
                                : "exited with status " + std::to_string(WEXITSTATUS(status));
    if (first.ok()) {
      first = Status(ErrorCode::kRankFailed, "rank " + std::to_string(rank) + " " + how, rank);
    }
  }
  if (!first) throw Error(first, {.operation = "spawn"});
}

}  // namespace

void spawn(int n, const std::function<void(Communicator&)>& body, const SpawnOptions& options) {
  if (n < 1 || n > 1024) {
    throw Error(Status(ErrorCode::kInvalidArgument,
                       "spawn() of " + std::to_string(n) + " ranks; 1 to 1024 are possible"),
                {.operation = "spawn"});
  }
  Result<Config> config = Config::from_environment();
  if (!config) throw Error(config.error(), {.operation = "spawn"});
  if (!options.transport.empty()) config->transport = options.transport;
  if (options.timeout.count() > 0) config->timeout = options.timeout;
  const std::string name = "unisono-spawn-" + JobKey::random().to_hex().substr(0, 24);
  if (options.as == SpawnOptions::As::kProcesses) {
    run_processes(*config, name, n, body);
  } else {
    run_threads(*config, name, n, body);
  }
}

}  // namespace unisono
