// From the options to the rows: which rows there are, and one rank's walk through them.
#include "tools/perf/perf_tool.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/perf/buffers.h"
#include "tools/common/local_ranks.h"
#include "tools/perf/measure.h"
#include "tools/perf/options.h"
#include "tools/perf/rank_sync.h"
#include "tools/perf/report.h"
#include "tools/perf/slots.h"
#include "unisono/communicator.h"

namespace unisono::perf {
namespace {

/// The limit of a barrier where the user gave none: the library's own default.
constexpr std::chrono::minutes kTimeoutDefault{10};

Problem make_problem(const Options& options, const Communicator& communicator, DataType type,
                     ReduceOp op) {
  Problem problem{.measured = options.measured,
                  .rank = communicator.rank(),
                  .ranks = communicator.size(),
                  .type = type,
                  .op = op};
  problem.options.timeout = options.timeout;
  problem.options.algorithm = options.algorithm;
  return problem;
}

std::vector<Rank> roots_of(const Options& options, int ranks) {
  if (!options.measured->rooted) return {0};
  if (options.roots.front() != kEveryRoot) return options.roots;
  std::vector<Rank> all;
  for (Rank r = 0; r < ranks; ++r) all.push_back(r);
  return all;
}

/// Sets the sizes of a row; false when it is too small for one element per rank.
bool set_size(std::uint64_t bytes, Row& row) {
  Problem& problem = row.problem;
  const std::size_t ranks = problem.measured->divides ? static_cast<std::size_t>(problem.ranks) : 1;
  problem.count = bytes / (ranks * size_of(problem.type));
  row.bytes = problem.count * ranks * size_of(problem.type);
  if (problem.measured->uneven) fill_counts(problem);
  return problem.count > 0;
}

/// All rows of one combination of type, operator and root, in the order they are printed.
void add_rows(const Options& options, const Problem& base, std::vector<Row>& rows) {
  if (base.measured->in == Extent::kNone && base.measured->out == Extent::kNone) {
    rows.push_back({.problem = base});
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

std::vector<Row> list_rows(const Options& options, const Communicator& communicator) {
  std::vector<Row> rows;
  const std::vector<ReduceOp> ops =
      options.measured->reduces ? options.ops : std::vector<ReduceOp>{unisono::sum};
  const bool moves_nothing =
      options.measured->in == Extent::kNone && options.measured->out == Extent::kNone;
  for (const DataType type : options.types) {
    if (moves_nothing && !rows.empty()) break;  // a type makes no difference
    for (const ReduceOp& op : ops) {
      if (options.measured->reduces && !applies(*options.measured, op.kind, type)) continue;
      for (const Rank root : roots_of(options, communicator.size())) {
        Problem problem = make_problem(options, communicator, type, op);
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
      return Status(ErrorCode::kInvalidArgument,
                    fmt::format("--root {} is not one of the {} ranks", root, ranks));
    }
  }
  if (options.measured->name == "p2p" && ranks < 2) {
    return Status(ErrorCode::kInvalidArgument, "p2p needs two ranks: -n 2");
  }
  return {};
}

Status check_rows(const Options& options, int ranks, const std::vector<Row>& rows) {
  if (!rows.empty()) return {};
  std::string types;
  for (const DataType type : options.types) {
    types += fmt::format("{}{}", types.empty() ? "" : ", ", unisono::name_of(type));
  }
  return Status(
      ErrorCode::kInvalidArgument,
      fmt::format("{} bytes are too few for one element of {} {} each of the {} ranks; "
                  "raise --maxbytes",
                  options.sizes.back(), types, options.measured->divides ? "for" : "on", ranks));
}

/// One arena of each kind that is asked for.
struct Arenas {
  std::optional<Arena> of_kind[2];
  Arena& operator[](BufferKind kind) { return *of_kind[static_cast<int>(kind)]; }
};

/// Returns the number of wrong elements. Only rank 0 prints.
std::uint64_t run_rows(const Options& options, Communicator& communicator, RankSync& sync,
                       std::vector<Row> rows) {
  Surroundings surroundings;
  surroundings.communicator = communicator.describe();
  surroundings.ranks = communicator.size();
  surroundings.is_shared_page = sync.is_shared();
  surroundings.empty = measure_empty(sync);
  // Hosts may differ, and the ranks' buffers must rotate alike.
  surroundings.cache_bytes = sync.decide(last_level_cache_bytes());
  const std::size_t arena_size =
      arena_bytes_for(options, communicator.size(), surroundings.cache_bytes);
  Arenas arenas;
  for (const BufferKind kind : options.buffers) {
    arenas.of_kind[static_cast<int>(kind)].emplace(communicator, kind, arena_size);
  }

  std::optional<Report> report;
  if (communicator.rank() == 0) report.emplace(options, surroundings, rows.size());
  if (report) report->header();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (report) report->progress(i, rows[i]);
    measure_row(communicator, sync, arenas[rows[i].buffers], options, surroundings.cache_bytes,
                rows[i]);
    wrong += rows[i].wrong.value_or(0);
    if (report) report->row(rows[i]);
  }
  if (report) report->footer(rows.size(), wrong);
  sync.barrier();
  return wrong;
}

int run_rank(const Options& options) {
  // A reader that leaves is an error of our own, so that the other ranks are told.
  std::signal(SIGPIPE, SIG_IGN);
  InitOptions init_options;
  init_options.transport = options.transport;
  init_options.timeout = options.timeout;
  Communicator communicator = init(init_options);
  Status status = check_ranks(options, communicator.size());
  std::vector<Row> rows;
  if (status) {
    rows = list_rows(options, communicator);
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
    return run_rows(options, communicator, sync, std::move(rows)) == 0 ? 0 : 1;
  } catch (...) {
    sync.give_up();
    throw;
  }
}

}  // namespace
}  // namespace unisono::perf

namespace unisono {

int perf_main(int argc, char** argv) {
  const perf::Parsed parsed = perf::parse_options(argc, argv);
  if (!parsed.should_run) return parsed.exit_status;
  const perf::Options& options = parsed.options;
  if (tools::is_under_launcher()) {
    const int launched = tools::launched_ranks();
    if (options.ranks_given && launched != options.ranks) {
      fmt::print(stderr,
                 "unisono perf: --ranks {} disagrees with the launcher, which started {}; leave "
                 "it away\n",
                 options.ranks, launched);
      return 2;
    }
  } else if (options.ranks > 1) {
    const Status status = tools::become_local_ranks(options.ranks, argc, argv);
    fmt::print(stderr, "unisono perf: {}\n", status.message());
    return 1;
  }
  try {
    return perf::run_rank(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "unisono perf: {}\n", error.what());
    return 1;
  }
}

}  // namespace unisono
