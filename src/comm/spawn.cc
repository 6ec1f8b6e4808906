// Ranks as threads of the calling program; the door to those that are processes.
#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/handshake.h"
#include "comm/communicator_state.h"
#include "comm/init.h"
#include "comm/spawn_ranks.h"
#include "rendezvous/arbiter/arbiter_server.h"

namespace unisono {
namespace {

RuntimeOptions rank_options(const SpawnJob& job, int rank) {
  RuntimeOptions options;
  options.config = job.config;
  options.rendezvous.kind =
      job.size == 1 ? RendezvousPoint::Kind::kAlone : RendezvousPoint::Kind::kAbstract;
  options.rendezvous.name = job.name;
  options.rendezvous.within_process = job.as == SpawnOptions::As::kThreads;
  // Threads of one process are stopped together.
  if (!options.rendezvous.within_process) options.rendezvous.silence = job.config.silence;
  options.rank = rank;
  options.size = options.local_size = job.size;
  const std::vector<int>& devices = job.devices;
  options.device.local_rank = rank;
  if (!devices.empty()) {
    options.device.ordinal = devices[static_cast<std::size_t>(rank) % devices.size()];
  }
  options.deadline = later(Clock::now(), job.config.timeout);
  return options;
}

// The first exception of all ranks. Any thread.
class FirstFailure {
 public:
  void note(const std::exception_ptr& failure) {
    if (!taken_.exchange(true)) failure_ = failure;
  }
  /// Once all threads have ended.
  void rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  std::atomic<bool> taken_{false};
  std::exception_ptr failure_;
};

// False where a body has moved a communicator out, which is open.
bool has_left(const std::weak_ptr<Runtime>& joined) {
  const std::shared_ptr<Runtime> runtime = joined.lock();
  return runtime == nullptr || runtime->is_shut_down();
}

void run_threads(const SpawnJob& job) {
  FirstFailure first;
  std::vector<std::weak_ptr<Runtime>> joined(static_cast<std::size_t>(job.size));
  const NoteFailure note = [&first](const std::exception_ptr& failure) { first.note(failure); };
  // Nobody begins before all exist: a rank that waits for one that cannot be made would do so
  // until its deadline.
  std::promise<bool> all_exist;
  const std::shared_future<bool> may_begin = all_exist.get_future().share();
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(job.size));
  std::string refusal;
  for (int rank = 0; rank < job.size && refusal.empty(); ++rank) {
    try {
      threads.emplace_back([&, may_begin, rank] {
        if (!may_begin.get()) return;
        try {
          run_rank(job, rank, note, &joined[static_cast<std::size_t>(rank)]);
        } catch (...) {
          note(std::current_exception());
        }
      });
    } catch (const std::exception& failure) {
      refusal = "the thread of rank " + std::to_string(rank) + " of " + std::to_string(job.size) +
                " cannot be made: " + failure.what() +
                "; spawn fewer ranks or raise the limits of threads and memory";
    }
  }
  all_exist.set_value(refusal.empty());
  for (std::thread& thread : threads) thread.join();
  if (std::all_of(joined.begin(), joined.end(), has_left)) rendezvous::end_arbiters_of(job.name);
  if (!refusal.empty()) {
    throw Error(Status(ErrorCode::kOutOfResources, refusal, static_cast<Rank>(threads.size())),
                {.operation = "spawn"});
  }
  first.rethrow();
}

}  // namespace

std::string describe_failure(int rank, const std::exception_ptr& failure) {
  const std::string who = "rank " + std::to_string(rank) + " threw";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& known) {
    return who + ": " + known.what();
  } catch (...) {
    return who + " something that is no std::exception";
  }
}

void run_rank(const SpawnJob& job, int rank, const NoteFailure& note,
              std::weak_ptr<Runtime>* joined) {
  auto made = detail::join_world(rank_options(job, rank));
  if (!made) throw Error(made.error(), {.operation = "init"});
  Communicator world = CommunicatorAccess::make(*std::move(made));
  if (joined != nullptr) *joined = CommunicatorAccess::state(world)->shared_runtime();
  try {
    job.body(world);
  } catch (...) {
    const std::exception_ptr failure = std::current_exception();
    note(failure);
    // The others must not wait for a rank that has given up.
    world.abort(describe_failure(rank, failure));
    throw;
  }
}

void spawn(int n, const std::function<void(Communicator&)>& body, const SpawnOptions& options) {
  if (n < 1 || n > kSpawnRanksMax) {
    throw Error(
        Status(ErrorCode::kInvalidArgument, "spawn() of " + std::to_string(n) + " ranks; 1 to " +
                                                std::to_string(kSpawnRanksMax) + " are possible"),
        {.operation = "spawn"});
  }
  Result<Config> config = Config::from_environment();
  if (!config) throw Error(config.error(), {.operation = "spawn"});
  if (const Status known = config->set_transport(options.transport); !known) {
    throw Error(known, {.operation = "spawn"});
  }
  if (options.timeout.count() > 0) config->timeout = options.timeout;
  const std::string name = "unisono-spawn-" + random_hex(24);
  const SpawnJob job{*config, name, n, options.devices, body, options.as};
  if (options.as == SpawnOptions::As::kProcesses) {
    run_processes(job);
  } else {
    run_threads(job);
  }
}

}  // namespace unisono
