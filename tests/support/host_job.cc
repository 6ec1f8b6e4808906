#include "tests/support/host_job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <future>
#include <string>
#include <vector>

#include "comm/init.h"
#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

thread_local int this_host = -1;

}  // namespace
}  // namespace unisono::test

// In the C library's place: what a rank publishes as its host ends with this.
extern "C" int gethostname(char* name, std::size_t bytes) noexcept {
  std::snprintf(name, bytes, "host%d", unisono::test::this_host);
  return 0;
}

namespace unisono::test {
namespace {

RuntimeOptions options_of(const HostJob& job, const std::string& name, Rank rank) {
  Result<Config> config = Config::from_environment();
  if (!config) throw Error(config.error(), {.operation = "spawn_hosts"});
  RuntimeOptions options;
  options.config = std::move(*config);
  options.config.interface_address = "127.0.0.1";
  options.config.timeout = kCallTimeout;
  options.config.transport = job.transport;
  options.rendezvous.kind = RendezvousPoint::Kind::kAbstract;
  options.rendezvous.name = name;
  options.rank = rank;
  options.size = static_cast<int>(job.hosts.size());
  options.deadline = later(Clock::now(), options.config.timeout);
  options.device.local_rank = rank;
  if (!job.devices.empty()) {
    options.device.ordinal = job.devices[static_cast<std::size_t>(rank) % job.devices.size()];
  }
  return options;
}

void run_rank(const HostJob& job, const std::string& name, Rank rank,
              const std::function<void(Communicator&)>& body) {
  this_host = job.hosts[static_cast<std::size_t>(rank)];
  Communicator comm = join_job(options_of(job, name, rank));
  try {
    body(comm);
  } catch (const std::exception& failure) {
    comm.abort("rank " + std::to_string(comm.rank()) + ": " + failure.what());
    throw;
  }
}

}  // namespace

// A first job starts the ranks and watches over them; the second one is what the test sees.
void spawn_hosts(const HostJob& job, const std::function<void(Communicator&)>& body) {
  static std::atomic<int> jobs{0};
  const std::string name =
      "unisono-hosts-" + std::to_string(getpid()) + "-" + std::to_string(jobs.fetch_add(1));
  SpawnOptions options;
  options.as = job.processes ? SpawnOptions::As::kProcesses : SpawnOptions::As::kThreads;
  options.timeout = kCallTimeout;
  const int ranks = job.processes ? job.ranks_of_a_process : 1;
  spawn(
      static_cast<int>(job.hosts.size()) / ranks,
      [&](Communicator& starter) {
        const Rank first = starter.rank() * ranks;
        if (!job.watched) starter.close();
        if (ranks == 1) return run_rank(job, name, first, body);
        std::vector<std::future<void>> threads;
        for (Rank rank = first; rank < first + ranks; ++rank) {
          threads.push_back(
              std::async(std::launch::async, [&, rank] { run_rank(job, name, rank, body); }));
        }
        for (std::future<void>& thread : threads) thread.get();
      },
      options);
}

void run_hosts(const HostJob& job, const std::function<void(Communicator&)>& body) {
  try {
    spawn_hosts(job, body);
  } catch (const std::exception& failure) {
    ADD_FAILURE() << job.hosts.size() << " ranks on several hosts: " << failure.what();
  }
}

}  // namespace unisono::test
