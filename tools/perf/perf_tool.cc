// From the options to the rows: which rows there are, and one rank's walk through them.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/selected.h"
#include "config/config.h"
#include "config/launcher.h"
#include "tools/common/commands.h"
#include "tools/common/invalid.h"
#include "tools/common/local_ranks.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/perf/buffers.h"
#include "tools/perf/device_buffers.h"
#include "tools/perf/device_floor.h"
#include "tools/perf/measure.h"
#include "tools/perf/options.h"
#include "tools/perf/rank_sync.h"
#include "tools/perf/report.h"
#include "tools/perf/slots.h"
#include "topology/processors.h"
#include "unisono/communicator.h"

namespace unisono::perf {
namespace {

/// The limit of a barrier where the user gave none: the library's own default.
constexpr std::chrono::minutes kTimeoutDefault{10};

Problem make_problem(const Options& options, Rank rank, int ranks, const DeviceBuffers* device,
                     DataType type, ReduceOp op) {
  Problem problem{
      .measured = options.measured, .rank = rank, .ranks = ranks, .type = type, .op = op};
  problem.options.timeout = options.timeout;
  problem.options.algorithm = options.algorithm;
  if (device != nullptr) problem.options.stream = device->stream();
  return problem;
}

std::vector<Rank> roots_of(const Options& options, int ranks) {
  if (!options.measured->facts.has_root()) return {0};
  if (options.roots.front() != kEveryRoot) return options.roots;
  std::vector<Rank> all;
  for (Rank r = 0; r < ranks; ++r) all.push_back(r);
  return all;
}

/// Sets the sizes of a row; false when it is too small for one element per rank.
bool set_size(std::uint64_t bytes, Row& row) {
  Problem& problem = row.problem;
  const std::size_t ranks =
      problem.measured->facts.has_blocks() ? static_cast<std::size_t>(problem.ranks) : 1;
  problem.count = bytes / (ranks * size_of(problem.type));
  row.bytes = problem.count * ranks * size_of(problem.type);
  if (problem.measured->facts.is_uneven) fill_counts(problem);
  return problem.count > 0;
}

/// All rows of one combination of type, operator and root, in the order they are printed.
void add_rows(const Options& options, const Problem& base, std::vector<Row>& rows) {
  if (!base.measured->facts.has_buffers()) {
    rows.push_back(
        {.problem = base, .mode = options.modes.front(), .buffers = options.buffers.front()});
    return;
  }
  std::uint64_t previous = 0;
  for (const std::uint64_t bytes : options.sizes) {
    Row row{.problem = base};
    if (!set_size(bytes, row) || row.bytes == previous) continue;
    previous = row.bytes;
    for (const BufferKind buffers : options.buffers) {
      for (const Mode mode : options.modes) {
        for (const bool in_place : options.places) {
          row.buffers = buffers;
          row.mode = mode;
          row.problem.in_place = in_place;
          rows.push_back(row);
        }
      }
    }
  }
}

std::vector<Row> list_rows(const Options& options, Rank rank, int ranks,
                           const DeviceBuffers* device) {
  std::vector<Row> rows;
  const std::vector<ReduceOp> ops =
      options.measured->facts.reduces ? options.ops : std::vector<ReduceOp>{unisono::ops::sum};
  const bool moves_nothing = !options.measured->facts.has_buffers();
  for (const DataType type : options.types) {
    if (moves_nothing && !rows.empty()) break;  // a type makes no difference
    for (const ReduceOp& op : ops) {
      if (options.measured->facts.reduces && !applies(*options.measured, op.kind, type)) continue;
      for (const Rank root : roots_of(options, ranks)) {
        Problem problem = make_problem(options, rank, ranks, device, type, op);
        problem.root = root;
        add_rows(options, problem, rows);
      }
    }
  }
  return rows;
}

Status check_ranks(const Options& options, int ranks) {
  for (const Rank root : options.roots) {
    if (root >= ranks) {
      return tools::invalid("--root {} is not one of the {} ranks", root, ranks);
    }
  }
  if (options.measured->facts.name == "p2p" && ranks < 2) {
    return tools::invalid("p2p needs two ranks: -n 2");
  }
  return {};
}

/// That some size holds one element, of each rank where the buffer is divided.
Status check_rows(const Options& options, int ranks, const std::vector<Row>& rows) {
  if (!rows.empty()) return {};
  const auto smallest =
      *std::min_element(options.types.begin(), options.types.end(),
                        [](DataType one, DataType other) { return size_of(one) < size_of(other); });
  const bool is_divided = options.measured->facts.has_blocks();
  const std::uint64_t needed =
      size_of(smallest) * (is_divided ? static_cast<std::uint64_t>(ranks) : 1);
  const std::string element =
      fmt::format("one element of {}{} takes {} bytes", unisono::name_of(smallest),
                  is_divided ? fmt::format(" for each of the {} ranks", ranks) : "", needed);
  const std::string bytes_max = tools::format_bytes(options.bytes_max);
  if (options.bytes_max < needed) {
    return tools::invalid("--maxbytes {} is too small: {}", bytes_max, element);
  }
  return tools::invalid(
      "no size from --minbytes {} to --maxbytes {} is large enough: {}; set --minbytes {}",
      tools::format_bytes(options.sizes.front()), bytes_max, element, tools::format_bytes(needed));
}

/// One arena of each kind that is asked for.
struct Arenas {
  std::optional<Arena> of_kind[2];
  Arena& operator[](BufferKind kind) { return *of_kind[static_cast<int>(kind)]; }
};

/// What the ranks' devices have in common. Collective.
void survey_devices(const Options& options, Communicator& communicator, RankSync& sync,
                    DeviceBuffers& device, Surroundings& surroundings) {
  surroundings.device = device.name();
  std::array<std::uint64_t, 2> ends{device.identity(), ~device.identity()};
  communicator.all_reduce(ends, unisono::ops::min);
  surroundings.has_several_devices = ends[0] != ~ends[1];
  surroundings.cache_bytes = sync.decide(device.cache_bytes());
  // One rank alone: ranks that share a device would halve each other's rate.
  if (options.floor && communicator.rank() == 0) surroundings.floor = measure_floor(device);
  sync.barrier();
}

/// Returns the number of wrong elements. Only rank 0 prints.
std::uint64_t run_rows(const Options& options, Communicator& communicator, RankSync& sync,
                       DeviceBuffers* device, std::vector<Row> rows) {
  Surroundings surroundings;
  surroundings.communicator = communicator.describe();
  surroundings.ranks = communicator.size();
  surroundings.is_shared_page = sync.is_shared();
  surroundings.empty = measure_empty(sync);
  // Hosts may differ, and the ranks' buffers must rotate alike.
  surroundings.cache_bytes = sync.decide(last_level_cache_bytes());
  if (device != nullptr) survey_devices(options, communicator, sync, *device, surroundings);
  const std::size_t arena_size =
      arena_bytes_for(options, communicator.size(), surroundings.cache_bytes);
  if (device == nullptr) {
    const Status fits = check_fits(ranks_on_this_host(communicator), arena_size,
                                   static_cast<int>(options.buffers.size()));
    if (!fits) throw Error(fits);
  }
  Arenas arenas;
  for (const BufferKind kind : options.buffers) {
    arenas.of_kind[static_cast<int>(kind)].emplace(communicator, kind, arena_size, device);
  }

  std::optional<Report> report;
  if (communicator.rank() == 0) report.emplace(options, surroundings, rows.size());
  if (report) report->header();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (sync.decide(report && report->is_unread() ? 1 : 0) != 0) break;
    if (report) report->progress(i, rows[i]);
    measure_row(communicator, sync, arenas[rows[i].buffers], device, options,
                surroundings.cache_bytes, rows[i]);
    wrong += rows[i].wrong.value_or(0);
    if (report) report->row(rows[i]);
  }
  sync.barrier();
  if (report && options.floor) report->floor_at_end(measure_floor(*device));
  if (report) report->footer(rows.size(), wrong);
  sync.barrier();
  return wrong;
}

/// What selection takes for the row. Calls on a GPU choose their way by themselves, and messages
/// have none.
void note_selected(const Options& options, Communicator& communicator, Row& row) {
  const Problem& problem = row.problem;
  Call call{.type = problem.type, .op = problem.op, .options = problem.options};
  row.transport = link_of(communicator);
  if (options.memory == MemoryKind::kCuda) {
    row.transport = options.transport.empty() ? "auto" : options.transport;
    row.algorithm = options.algorithm.empty() ? "auto" : options.algorithm;
  } else if (parse(options.measured->facts.name, &call.collective)) {
    row.algorithm = selected_for(communicator, call, row.bytes).algorithm;
  } else {
    row.algorithm = "none";
  }
}

/// The whole of one rank, `device` being null where the memory is the host's.
int run_rank(const Options& options, Communicator& communicator, DeviceBuffers* device) {
  Status status = check_ranks(options, communicator.size());
  std::vector<Row> rows;
  if (status) {
    rows = list_rows(options, communicator.rank(), communicator.size(), device);
    for (Row& row : rows) note_selected(options, communicator, row);
    status = check_rows(options, communicator.size(), rows);
  }
  if (!status) {
    if (communicator.rank() == 0) {
      fmt::print(stderr, "unisono perf: {}\n", status.message());
    }
    return 2;
  }
  const auto limit = options.timeout.count() > 0
                         ? options.timeout
                         : std::chrono::duration_cast<std::chrono::milliseconds>(kTimeoutDefault);
  RankSync sync(communicator, limit);
  try {
    return run_rows(options, communicator, sync, device, std::move(rows)) == 0 ? 0 : 1;
  } catch (...) {
    sync.give_up();
    throw;
  }
}

template <typename T>
T must(Result<T> result) {
  if (!result) throw Error(result.error());
  return std::move(*result);
}

/// Those of this process's ranks, in turn; empty: none is asked for.
std::vector<int> choose_devices(const Options& options, const CudaConfig& config) {
  if (options.memory == MemoryKind::kHost) return {};
  const Result<int> counted = count_devices(config);
  if (!counted) {
    throw Error(Status(counted.error().code(), "there is no GPU for --memory cuda: " +
                                                   std::string(counted.error().message())));
  }
  if (options.device >= *counted) {
    throw Error(
        tools::invalid("--device {}: the devices are 0 to {}", options.device, *counted - 1));
  }
  if (options.device >= 0) return {options.device};
  std::vector<int> devices(static_cast<std::size_t>(*counted));
  std::iota(devices.begin(), devices.end(), 0);
  if (options.ranks_as == RanksAs::kThreads) return devices;
  const int rank = std::max(must(LauncherVariables::from_environment()).local_rank, 0);
  return {devices[static_cast<std::size_t>(rank) % devices.size()]};
}

std::unique_ptr<DeviceBuffers> open_device(const CudaConfig& config,
                                           const std::vector<int>& devices, Rank rank) {
  if (devices.empty()) return nullptr;
  return must(
      DeviceBuffers::open(config, devices[static_cast<std::size_t>(rank) % devices.size()]));
}

int run_process(const Options& options, const CudaConfig& config, const std::vector<int>& devices) {
  InitOptions init_options;
  init_options.transport = options.transport;
  init_options.timeout = options.timeout;
  if (!devices.empty()) init_options.device = devices.front();
  Communicator communicator = init(init_options);
  const auto device = open_device(config, devices, 0);
  return run_rank(options, communicator, device.get());
}

/// As the launcher does it with processes: a core for each rank where there are enough.
void bind_thread(Rank rank, int ranks) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks) return;
  int skipped = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skipped++ < rank) continue;
    CPU_ZERO(&allowed);
    CPU_SET(cpu, &allowed);
    sched_setaffinity(0, sizeof allowed, &allowed);
    return;
  }
}

int run_threads(const Options& options, const CudaConfig& config, const std::vector<int>& devices) {
  SpawnOptions spawn_options;
  spawn_options.transport = options.transport;
  spawn_options.timeout = options.timeout;
  spawn_options.devices = devices;
  std::atomic<int> worst = 0;
  const auto body = [&](Communicator& communicator) {
    bind_thread(communicator.rank(), communicator.size());
    const auto device = open_device(config, devices, communicator.rank());
    if (const int status = run_rank(options, communicator, device.get()); status != 0) {
      worst = status;
    }
  };
  spawn(options.ranks, body, spawn_options);
  return worst;
}

/// The ranks of this process, from the environment on.
int run_here(const Options& options, const CudaConfig& config) {
  // A reader that leaves is an error of our own, so that the other ranks are told.
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<int> devices = choose_devices(options, config);
  return options.ranks_as == RanksAs::kThreads ? run_threads(options, config, devices)
                                               : run_process(options, config, devices);
}

/// Before other processes are started: what is wrong is better said once.
Status check_device(const Options& options, const CudaConfig& config) {
  try {
    choose_devices(options, config);
  } catch (const Error& error) {
    return error.status();
  }
  return {};
}

bool starts_processes(const Options& options) {
  return options.ranks > 1 && options.ranks_as == RanksAs::kProcesses;
}

/// All of it that is known of ranks that are started here.
Status check_local_job(const Options& options, const Config& config) {
  const std::string& transport = options.transport.empty() ? config.transport : options.transport;
  if (starts_processes(options) && transport == "loopback") {
    return tools::invalid("transport loopback is between threads of one process: add --as threads");
  }
  UNISONO_TRY(check_ranks(options, options.ranks));
  UNISONO_TRY(check_rows(options, options.ranks, list_rows(options, 0, options.ranks, nullptr)));
  if (options.memory == MemoryKind::kCuda) return {};
  return check_fits(options.ranks,
                    arena_bytes_for(options, options.ranks, last_level_cache_bytes()),
                    static_cast<int>(options.buffers.size()));
}

}  // namespace
}  // namespace unisono::perf

namespace unisono {

int perf_main(int argc, char** argv) {
  const perf::Parsed parsed = perf::parse_options(argc, argv);
  if (!parsed.should_run) return parsed.exit_status;
  perf::Options options = parsed.options;
  const Result<Config> config = Config::from_environment();
  if (!config) return tools::fail("unisono perf", config.error(), 2);
  if (tools::is_under_launcher() && options.ranks_as == perf::RanksAs::kThreads) {
    fmt::print(stderr, "unisono perf: --as threads: a launcher started this as one rank already\n");
    return 2;
  }
  if (!tools::is_under_launcher() && !options.ranks_given) {
    options.ranks = perf::default_ranks(topology::read_processors());
  }
  if (tools::is_under_launcher()) {
    const int launched = tools::launched_ranks();
    if (options.ranks_given && launched != options.ranks) {
      fmt::print(stderr,
                 "unisono perf: --ranks {} disagrees with the launcher, which started {}; leave "
                 "it away\n",
                 options.ranks, launched);
      return 2;
    }
  } else if (const Status wrong = perf::check_local_job(options, *config); !wrong) {
    return tools::fail("unisono perf", wrong, 2);
  } else if (perf::starts_processes(options)) {
    if (const Status missing = perf::check_device(options, config->cuda); !missing) {
      return tools::fail("unisono perf", missing, 1);
    }
    return tools::fail("unisono perf", tools::become_local_ranks(options.ranks, {}, argc, argv), 1);
  }
  try {
    return perf::run_here(options, config->cuda);
  } catch (const std::exception& error) {
    // The ranks of `unisono perf` itself have no prefix.
    const std::string whose =
        tools::is_under_launcher() ? fmt::format("rank {}: ", tools::launched_place().rank) : "";
    fmt::print(stderr, "unisono perf: {}{}\n", whose, error.what());
    return 1;
  }
}

}  // namespace unisono
