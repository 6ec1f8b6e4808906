#include "comm/init.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/per_process.h"
#include "comm/communicator_state.h"
#include "comm/grow.h"
#include "comm/split.h"
#include "config/environment.h"
#include "config/launcher.h"
#include "rendezvous/meeting/rendezvous_point.h"
#include "rendezvous/meeting/unique_id.h"
#include "rendezvous/store/launcher_store.h"
#include "unisono/version.h"

namespace unisono {
namespace {

// The job of this process: of init() alone, ranks that are threads have their own. One thread at a
// time looks at it, from before the job is joined until it is known; whoever comes meanwhile is
// refused.
class ProcessJob {
 public:
  ProcessJob() {
    if (here_.is_looked_at.exchange(true, std::memory_order_acquire)) {
      refuse("another thread of this process is in init(): it joins the job");
    }
    const auto running = here_.runtime.lock();
    if (running != nullptr && !running->is_shut_down()) {
      end_turn();
      refuse("init() was called before in this process; close() its communicators first");
    }
  }
  ~ProcessJob() { end_turn(); }
  ProcessJob(const ProcessJob&) = delete;

  void set(const std::shared_ptr<Runtime>& joined) { here_.runtime = joined; }

 private:
  struct Here {
    std::atomic<bool> is_looked_at{false};
    std::weak_ptr<Runtime> runtime;
  };
  void end_turn() { here_.is_looked_at.store(false, std::memory_order_release); }
  [[noreturn]] static void refuse(const char* why) {
    throw Error(Status(ErrorCode::kInvalidArgument, why), {.operation = "init"});
  }

  static inline constinit PerProcess<Here> of_process_;
  Here& here_ = of_process_.get();
};

template <typename T>
T value_or_throw(Result<T> result, const char* operation = "init") {
  if (!result) throw Error(result.error(), {.operation = operation});
  return std::move(*result);
}

log::Level log_level(const std::string& name) {
  if (name == "debug") return log::Level::kDebug;
  if (name == "info") return log::Level::kInfo;
  if (name == "error") return log::Level::kError;
  if (name == "off") return log::Level::kOff;
  return log::Level::kWarning;
}

Result<Config> merge(Config config, const InitOptions& options) {
  UNISONO_TRY(config.set_transport(options.transport));
  if (!options.rendezvous.empty()) config.rendezvous = options.rendezvous;
  if (!options.job_key.empty()) config.job_key = SecretText(options.job_key);
  if (options.timeout.count() > 0) config.timeout = options.timeout;
  if (options.order != Order::kAny) config.order = options.order;
  return config;
}

// What the program says of its rank and size goes before what the launcher says, whose ranks of
// this host are then not those of the job.
void place_in_job(const InitOptions& options, std::string_view rendezvous,
                  LauncherVariables* variables) {
  const int rank = options.rank >= 0 ? options.rank : variables->rank;
  const int size = options.size > 0 ? options.size : variables->world_size;
  if (rank != variables->rank || size != variables->world_size) variables->local_world_size = -1;
  variables->rank = rank;
  variables->world_size = size;
  const bool is_alone = options.size == 1 || (options.size <= 0 && rendezvous == "alone://");
  if (!is_alone || options.rank > 0) return;
  variables->rank = 0;
  variables->world_size = 1;
}

// A place that is no launcher's does not say who comes there.
Status check_who_comes(const LauncherVariables& variables, const std::string& place) {
  const bool has_rank = variables.rank >= 0, has_size = variables.world_size > 0;
  if (has_rank && has_size) return Status();
  if (variables.is_alone && !has_rank && !has_size) return Status();
  const std::string& rank = variables.rank_name;
  const std::string& size = variables.world_size_name;
  const std::string missing = has_size   ? rank + " is"
                              : has_rank ? size + " is"
                                         : rank + " and " + size + " are";
  return {ErrorCode::kInvalidArgument,
          "the ranks meet at " + place + ", and " + missing +
              " not set; set RANK and WORLD_SIZE, as torchrun and 'unisono run' do, or "
              "InitOptions::rank and size (size 1: a world of one)"};
}

Result<RendezvousPoint> point_for(const InitOptions& options, const Config& config,
                                  const LauncherVariables& variables) {
  const std::string_view job_key = config.job_key.view();
  if (options.store != nullptr) {
    UNISONO_TRY(check_who_comes(variables, "the given store"));
    return rendezvous_point_at_store(options.store, variables, job_key);
  }
  UNISONO_ASSIGN(RendezvousPoint point,
                 rendezvous_point_from_url(config.rendezvous, variables, config.port, job_key));
  if (config.rendezvous != "env://") UNISONO_TRY(check_who_comes(variables, config.rendezvous));
  return point;
}

}  // namespace

Result<std::shared_ptr<detail::CommunicatorState>> detail::join_world(RuntimeOptions options) {
  log::set_level(log_level(options.config.log));
  const TimePoint deadline = options.deadline;
  UNISONO_ASSIGN(std::shared_ptr<Runtime> runtime, Runtime::create(std::move(options)));
  UNISONO_ASSIGN(std::shared_ptr<CommunicatorState> world, make_world(runtime));
  UNISONO_TRY(learn_links(runtime, deadline));
  return world;
}

Communicator join_job(RuntimeOptions options, const char* operation) {
  auto world = value_or_throw(detail::join_world(std::move(options)), operation);
  detail::tell_launcher_of_meeting(world->runtime().config(), world->size());
  return CommunicatorAccess::make(std::move(world));
}

namespace {

// What follows from its configuration and the rank's place.
void complete(const LauncherVariables& variables, int device, RuntimeOptions* runtime) {
  runtime->rendezvous.interface_address = runtime->config.interface_address;
  runtime->rendezvous.silence = runtime->config.silence;
  runtime->rendezvous.warn_after = runtime->config.warn_after;
  runtime->rank = std::max(variables.rank, 0);
  runtime->size = std::max(variables.world_size, 1);
  runtime->local_size = variables.local_world_size > 0 ? variables.local_world_size
                        : runtime->size == 1           ? 1
                                                       : 0;
  runtime->rendezvous.local_rank = variables.local_rank;
  runtime->rendezvous.local_size = runtime->local_size;
  runtime->device = {.ordinal = device, .local_rank = std::max(variables.local_rank, 0)};
  runtime->deadline = later(Clock::now(), runtime->config.timeout);
}

// Of this process on its host, or -1: it says which device is the process' own. What launchers say
// besides may be wrong for all that join() knows. Some set -1 where they have started one process.
Result<int> local_rank() {
  int rank = -1;
  UNISONO_TRY(config::read_integer("LOCAL_RANK", -1, kWorldSizeMax - 1, &rank));
  if (rank >= 0) return rank;
  const Result<LauncherVariables> launched = LauncherVariables::from_environment();
  return launched ? launched->local_rank : -1;
}

std::atomic<bool> has_rejoined{false};

// Until that has succeeded once in a process that the launcher has started again, where the program
// leaves it to the launcher where to meet.
bool rejoins(const Config& config, const InitOptions& options) {
  const bool is_launchers = options.store == nullptr && config.rendezvous == "env://" &&
                            options.rank < 0 && options.size < 0;
  return config.rejoin && is_launchers && !has_rejoined;
}

}  // namespace

Communicator init(const InitOptions& options) {
  ProcessJob job;
  RuntimeOptions runtime;
  runtime.config = value_or_throw(merge(value_or_throw(Config::from_environment()), options));
  if (rejoins(runtime.config, options)) {
    Communicator grown =
        CommunicatorAccess::make(value_or_throw(detail::rejoin(runtime.config, options.device)));
    has_rejoined = true;
    job.set(CommunicatorAccess::state(grown)->shared_runtime());
    return grown;
  }
  LauncherVariables variables = value_or_throw(LauncherVariables::from_environment());
  place_in_job(options, runtime.config.rendezvous, &variables);
  runtime.rendezvous = value_or_throw(point_for(options, runtime.config, variables));
  complete(variables, options.device, &runtime);
  Communicator world = join_job(std::move(runtime));
  job.set(CommunicatorAccess::state(world)->shared_runtime());
  return world;
}

namespace {

Status check_place(Rank rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return Status();
  return {ErrorCode::kInvalidArgument, "rank " + std::to_string(rank) + " of " +
                                           std::to_string(size) +
                                           " ranks does not exist: they count from 0"};
}

/// What the ways to join have in common; `place` tells where the ranks meet.
template <typename Place>
Result<RuntimeOptions> options_at(Rank rank, int size, Config config, int device,
                                  const Place& place) {
  UNISONO_TRY(check_place(rank, size));
  RuntimeOptions runtime;
  runtime.config = std::move(config);
  LauncherVariables variables;
  UNISONO_ASSIGN(variables.local_rank, local_rank());
  variables.rank = rank;
  variables.world_size = size;
  UNISONO_ASSIGN(runtime.rendezvous, place(variables, runtime.config));
  complete(variables, device, &runtime);
  return runtime;
}

Result<RuntimeOptions> options_at_store(Config config, int device, const detail::StorePlace& at) {
  const auto place = [&](const LauncherVariables& variables,
                         const Config& merged) -> Result<RendezvousPoint> {
    RendezvousPoint point;
    if (at.size > 1) {
      UNISONO_ASSIGN(point, rendezvous_point_at_store(&at.store, variables, merged.job_key.view()));
    }
    point.name = at.name;
    point.go_on = at.go_on;
    point.comes_once = at.comes_once;
    point.is_newcomer = at.is_newcomer;
    return point;
  };
  return options_at(at.rank, at.size, std::move(config), device, place);
}

}  // namespace

Result<Config> detail::config_to_join(const InitOptions& options, const char* operation) {
  if (options.store != nullptr || !options.rendezvous.empty() || options.rank >= 0 ||
      options.size >= 0) {
    return Status(ErrorCode::kInvalidArgument,
                  std::string(operation) +
                      "() has its place, rank and size from its arguments: leave "
                      "InitOptions::store, rendezvous, rank and size as they are");
  }
  UNISONO_ASSIGN(Config config, Config::from_environment());
  return merge(std::move(config), options);
}

Result<std::shared_ptr<detail::CommunicatorState>> detail::join_at_store(Config config, int device,
                                                                         const StorePlace& place,
                                                                         TimePoint deadline) {
  UNISONO_ASSIGN(RuntimeOptions runtime, options_at_store(std::move(config), device, place));
  runtime.deadline = deadline;
  return join_world(std::move(runtime));
}

Communicator join(Store& store, std::string_view name, Rank rank, int size,
                  const InitOptions& options) {
  const char* const operation = "join";
  if (name.empty()) {
    throw Error(Status(ErrorCode::kInvalidArgument,
                       "join() needs a name, the same on all ranks of the communicator"),
                {.operation = operation});
  }
  Config config = value_or_throw(detail::config_to_join(options, operation), operation);
  return join_job(value_or_throw(options_at_store(std::move(config), options.device,
                                                  {store, std::string(name), rank, size, {}}),
                                 operation),
                  operation);
}

Communicator rejoin(Store& store, std::string_view name, int key, const InitOptions& options) {
  const char* const operation = "rejoin";
  const Config config = value_or_throw(detail::config_to_join(options, operation), operation);
  return CommunicatorAccess::make(
      value_or_throw(detail::rejoin(store, name, key, config, options.device), operation));
}

std::unique_ptr<Store> launcher_store() {
  const Config config = value_or_throw(Config::from_environment(), "launcher_store");
  if (config.launcher_store.empty()) return nullptr;
  return std::make_unique<rendezvous::LauncherStore>(config.launcher_store);
}

UniqueId make_unique_id() {
  const Config config = value_or_throw(Config::from_environment(), "make_unique_id");
  return value_or_throw(rendezvous::make_unique_id(config.interface_address), "make_unique_id");
}

Communicator join(const UniqueId& id, Rank rank, int size, const InitOptions& options) {
  const char* const operation = "join";
  if (!options.job_key.empty()) {
    throw Error(Status(ErrorCode::kInvalidArgument,
                       "a unique id has its own job key: leave InitOptions::job_key empty"),
                {.operation = operation});
  }
  const auto place = [&](const LauncherVariables&, const Config&) -> Result<RendezvousPoint> {
    UNISONO_ASSIGN(RendezvousPoint point, rendezvous_point_at_id(id));
    // Nobody else comes.
    if (size == 1) UNISONO_TRY(rendezvous::take_listeners(point.name));
    return point;
  };
  Config config = value_or_throw(detail::config_to_join(options, operation), operation);
  return join_job(
      value_or_throw(options_at(rank, size, std::move(config), options.device, place), operation),
      operation);
}

const char* version() { return UNISONO_VERSION; }

}  // namespace unisono
