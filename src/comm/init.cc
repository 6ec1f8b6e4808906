#include "comm/init.h"

#include <algorithm>

#include "base/log.h"
#include "comm/communicator_state.h"
#include "comm/split.h"
#include "rendezvous/meeting_point.h"
#include "unisono/version.h"

namespace unisono {
namespace {

// Of init() alone: ranks that are threads have their own jobs.
std::weak_ptr<Runtime>& runtime_of_process() {
  static std::weak_ptr<Runtime> runtime;
  return runtime;
}

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result) throw Error(result.error(), {.operation = "init"});
  return std::move(*result);
}

log::Level log_level(const std::string& name) {
  if (name == "debug") return log::Level::kDebug;
  if (name == "info") return log::Level::kInfo;
  if (name == "error") return log::Level::kError;
  if (name == "off") return log::Level::kOff;
  return log::Level::kWarning;
}

Config merge(Config config, const InitOptions& options) {
  if (!options.rendezvous.empty()) config.rendezvous = options.rendezvous;
  if (!options.transport.empty()) config.transport = options.transport;
  if (!options.job_key.empty()) config.job_key = options.job_key;
  if (options.timeout.count() > 0) config.timeout = options.timeout;
  return config;
}

}  // namespace

Communicator join_job(RuntimeOptions options) {
  log::set_level(log_level(options.config.log));
  std::shared_ptr<Runtime> runtime = value_or_throw(Runtime::create(std::move(options)));
  return CommunicatorAccess::make(value_or_throw(detail::make_world(std::move(runtime))));
}

Communicator init(const InitOptions& options) {
  if (const auto running = runtime_of_process().lock();
      running != nullptr && !running->is_shut_down() && !running->is_forked_copy()) {
    throw Error(Status(ErrorCode::kInvalidArgument,
                       "init() was called before in this process; close() its communicators first"),
                {.operation = "init"});
  }
  RuntimeOptions runtime;
  runtime.config = merge(value_or_throw(Config::from_environment()), options);
  LauncherVariables variables = value_or_throw(LauncherVariables::from_environment());
  if (options.rank >= 0) variables.rank = options.rank;
  if (options.size > 0) variables.world_size = options.size;
  runtime.meeting =
      value_or_throw(options.store != nullptr
                         ? meeting_point_at_store(options.store, variables, runtime.config.job_key)
                         : meeting_point_from_url(runtime.config.rendezvous, variables,
                                                  runtime.config.port, runtime.config.job_key));
  runtime.meeting.interface_address = runtime.config.interface_address;
  runtime.rank = std::max(variables.rank, 0);
  runtime.size = std::max(variables.world_size, 1);
  runtime.local_size = variables.local_world_size > 0 ? variables.local_world_size
                       : runtime.size == 1            ? 1
                                                      : 0;
  runtime.device = {.ordinal = options.device, .local_rank = std::max(variables.local_rank, 0)};
  runtime.deadline = later(Clock::now(), runtime.config.timeout);
  Communicator world = join_job(std::move(runtime));
  runtime_of_process() = CommunicatorAccess::state(world)->shared_runtime();
  return world;
}

void* allocate(Communicator& communicator, std::size_t bytes, MemoryKind kind) {
  detail::CommunicatorState* state = CommunicatorAccess::state(communicator);
  if (state == nullptr || state->closed()) {
    throw Error(Status(ErrorCode::kClosed, "allocate() needs an open communicator"),
                {.operation = "allocate"});
  }
  Result<void*> memory = state->runtime().allocate(bytes, kind);
  if (!memory) throw Error(memory.error(), {.operation = "allocate"});
  return *memory;
}

void release(Communicator& communicator, void* pointer) {
  detail::CommunicatorState* state = CommunicatorAccess::state(communicator);
  if (state == nullptr || pointer == nullptr) return;
  const Status status = state->runtime().release(pointer);
  if (!status) throw Error(status, {.operation = "release"});
}

const char* version() { return UNISONO_VERSION; }

}  // namespace unisono
