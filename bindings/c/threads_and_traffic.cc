// Ranks that this process makes, threads beside the ranks, and what a communicator has moved, in
// the C API.
#include <chrono>
#include <string>
#include <type_traits>

#include "bindings/c/call_conversion.h"
#include "bindings/c/handles.h"
#include "bindings/c/sized.h"
#include "unisono/helper_threads.h"
#include "unisono/traffic.h"

struct unisono_helper_threads {
  unisono::HelperThreads value;
};

namespace unisono::c {
namespace {

constexpr unisono_spawn_options kSpawnOptions = UNISONO_SPAWN_OPTIONS_INIT;

SpawnOptions spawn_options(const unisono_spawn_options* given) {
  const unisono_spawn_options set = with_defaults(given, kSpawnOptions, "spawn");
  if (set.processes != 0 && set.processes != 1) refuse("spawn", "`processes` is neither 0 nor 1");
  if (set.device_count < 0 || (set.device_count > 0 && set.devices == nullptr)) {
    refuse("spawn", "devices are counted, and there is no list of them");
  }
  SpawnOptions options;
  if (set.processes == 1) options.as = SpawnOptions::As::kProcesses;
  if (set.transport != nullptr) options.transport = set.transport;
  options.timeout = time_limit(set.timeout_ms, "spawn");
  options.devices.assign(set.devices, set.devices + set.device_count);
  return options;
}

// A body that gives up because its communicator failed, which was some other rank's fault, names
// that one. A failure of a call alone may be one that it has handled.
void run_body(int (*body)(void*, unisono_comm*), void* context, Communicator& communicator) {
  const Rank rank = communicator.rank();
  unisono_comm comm{std::move(communicator)};
  forget_failure();
  const int outcome = body(context, &comm);
  communicator = std::move(comm.value);
  if (outcome == 0) return;
  const Rank blamed = communicator.status().rank();
  std::string message = "the body returned " + std::to_string(outcome);
  if (unisono_last_error_code() != UNISONO_OK) {
    message += std::string(" after: ") + unisono_last_error();
  }
  throw Error(Status(ErrorCode::kAborted, message, blamed < 0 ? rank : blamed),
              {.operation = "spawn"});
}

void give_traffic(std::uint64_t calls, const Traffic& moved, unisono_traffic* taker) {
  unisono_traffic traffic = UNISONO_TRAFFIC_INIT;
  traffic.calls = calls;
  traffic.messages_sent = moved.messages_sent;
  traffic.bytes_sent = moved.bytes_sent;
  traffic.messages_received = moved.messages_received;
  traffic.bytes_received = moved.bytes_received;
  give(traffic, taker);
}

TrafficReport report_of(const unisono_comm* comm, const unisono_traffic* taker) {
  check_size(required(taker, "traffic", "there is no place for the traffic"), "traffic");
  return required(comm, "traffic", kNoCommunicator).value.traffic();
}

}  // namespace
}  // namespace unisono::c

using namespace unisono;
using namespace unisono::c;

unisono_code unisono_helper_threads_note(std::int32_t threads, unisono_helper_threads** note) {
  return guarded([&] {
    unisono_helper_threads*& made =
        required(note, "helper_threads", "there is no place for the note");
    made = new unisono_helper_threads{HelperThreads(threads)};
  });
}

void unisono_helper_threads_free(unisono_helper_threads* note) { delete note; }

unisono_code unisono_spawn(std::int32_t n, int (*body)(void* context, unisono_comm* comm),
                           void* context, const unisono_spawn_options* options) {
  return guarded([&] {
    if (body == nullptr) refuse("spawn", "the body is null");
    spawn(
        n, [&](Communicator& communicator) { run_body(body, context, communicator); },
        spawn_options(options));
  });
}

unisono_code unisono_traffic_of_collective(const unisono_comm* comm, unisono_collective collective,
                                           unisono_traffic* traffic) {
  return guarded([&] {
    const TrafficReport report = report_of(comm, traffic);
    if (collective < 0 || collective >= kCollectiveCount) {
      refuse("traffic", "the collective is no unisono_collective");
    }
    const auto index = static_cast<std::size_t>(collective);
    give_traffic(report.calls[index], report.by_collective[index], traffic);
  });
}

unisono_code unisono_traffic_of_peer(const unisono_comm* comm, std::int32_t rank,
                                     unisono_traffic* traffic) {
  return guarded([&] {
    const TrafficReport report = report_of(comm, traffic);
    const auto index = static_cast<std::size_t>(rank);
    if (rank < 0 || index >= report.by_peer.size()) {
      refuse("traffic", "the rank does not exist in this communicator");
    }
    give_traffic(0, report.by_peer[index], traffic);
  });
}
