// The three formats.
#include "tools/perf/report.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "config/config.h"
#include "tools/common/json_text.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/perf/device_floor.h"
#include "tools/perf/slots.h"

namespace unisono::perf {
namespace {

// What is asked for, by the option or else by the variable; the rows have what ran.
std::string in_force(const std::string& option, const Result<Config>& config,
                     const char* variable) {
  if (!option.empty()) return option;
  const std::string value = config ? value_text(*config, variable) : std::string();
  return value.empty() || value == "auto" ? "auto" : fmt::format("{} ({})", value, variable);
}

std::string op_of(const Row& row) {
  const bool reduces = row.problem.measured->facts.reduces;
  return reduces ? std::string(unisono::name_of(row.problem.op.kind)) : "none";
}

/// Four significant digits or so, as the eye compares them.
std::string time_text(double us) {
  return us < 10     ? fmt::format("{:.3f}", us)
         : us < 1000 ? fmt::format("{:.2f}", us)
                     : fmt::format("{:.1f}", us);
}
/// JSON numbers keep their decimals to what a clock can tell.
double rounded(double us) { return std::round(us * 1e3) / 1e3; }
std::string_view barrier_of(const Surroundings& surroundings) {
  return surroundings.is_shared_page ? "shared memory" : "library";
}
std::string wrong_text(const Row& row) { return row.wrong ? fmt::format("{}", *row.wrong) : "N/A"; }

std::string floor_text(const Floor& floor) {
  if (floor.rate() == 0) return "";
  return fmt::format(
      "copies move {:.1f} GB/s (the driver's) and {:.1f} (a kernel's), read and written; an "
      "empty kernel takes {:.2f} us",
      floor.driver_rate * 1e-9, floor.kernel_rate * 1e-9, floor.launch_us);
}
nlohmann::ordered_json floor_json(const Floor& floor) {
  return {{"driver_copy_GBps", floor.driver_rate * 1e-9},
          {"kernel_copy_GBps", floor.kernel_rate * 1e-9},
          {"launch_us", rounded(floor.launch_us)}};
}

tools::Table make_table(const Options& options) {
  std::vector<tools::Column> columns{{.title = "bytes", .width_min = 11},
                                     {.title = "count", .width_min = 11},
                                     {.title = "type", .width_min = 11}};
  if (options.measured->facts.reduces) columns.push_back({.title = "op", .width_min = 8});
  if (options.measured->facts.has_root()) columns.push_back({.title = "root", .width_min = 4});
  if (options.buffers.size() > 1) columns.push_back({.title = "buffers", .width_min = 9});
  for (const char* title : {"mode", "place"}) {
    columns.push_back({.title = title, .width_min = 5});
  }
  columns.push_back({.title = "iters", .width_min = 5});
  for (const char* title : {"min us", "median us", "p99 us", "loop us"}) {
    columns.push_back({.title = title, .width_min = 10});
  }
  for (const char* title : {"algbw GB/s", "busbw GB/s", "#wrong"}) {
    columns.push_back({.title = title, .width_min = std::string_view(title).size()});
  }
  if (options.memory == MemoryKind::kCuda) {
    for (const char* title : {"gpu us", "gpu loop us", "x floor"}) {
      columns.push_back({.title = title, .width_min = 11});
    }
  }
  return tools::Table(std::move(columns));
}

}  // namespace

Report::Report(const Options& options, const Surroundings& surroundings, std::uint64_t rows)
    : options_(options),
      surroundings_(surroundings),
      table_(make_table(options)),
      progress_(stderr, rows) {}

void Report::header() {
  if (options_.format == Format::kCsv) {
    fmt::print(
        "{}{}\n",
        "collective,transport,ranks,bytes,count,type,op,root,in_place,mode,buffers,algorithm,"
        "iterations,time_us_min,time_us_median,time_us_p99,loop_us,algbw_GBps,busbw_GBps,"
        "wrong,barrier,empty_us",
        is_on_device() ? ",ranks_as,gpu_us_median,gpu_loop_us,floor_us" : "");
  }
  if (options_.format != Format::kTable) return;
  fmt::print("# unisono perf {}: {}; this is {}\n", options_.measured->facts.name,
             tools::counted(surroundings_.ranks, "rank", "ranks"), surroundings_.communicator);
  const Result<Config> config = Config::from_environment();
  fmt::print("# transport {}, algorithm {}, {} buffers\n",
             in_force(options_.transport, config, "UNISONO_TRANSPORT"),
             in_force(options_.algorithm, config, "UNISONO_ALGORITHM"),
             options_.buffers.size() > 1 ? "private and allocated" : name_of(options_.buffers[0]));
  fmt::print(
      "# times: slowest rank behind {} before each iteration; an empty operation reads "
      "{:.3f} us\n",
      surroundings_.is_shared_page ? "a barrier in shared memory" : "the library's barrier",
      surroundings_.empty.median_us);
  if (is_on_device()) {
    fmt::print("# GPU memory: {}{}; ranks are {}", surroundings_.device,
               surroundings_.has_several_devices ? " and others" : "", name_of(options_.ranks_as));
    const std::string floor = floor_text(surroundings_.floor);
    fmt::print("{}{}\n", floor.empty() ? "" : "; ", floor);
  }
  for (const Mode mode : options_.modes) {
    fmt::print("# {}\n",
               mode == Mode::kHot
                   ? "hot: the owner rewrites the same input before each iteration"
                   : fmt::format("cold: buffers rotate over {} times {} of cache", kColdFactor,
                                 tools::format_bytes(surroundings_.cache_bytes)));
  }
  fmt::print("{}", table_.header_line());
  flush();
}

// Measuring on for hours and losing every row helps nobody.
void Report::flush() {
  if (const Status flushed = tools::flush_output(); !flushed) {
    is_unread_ = tools::is_reader_gone();
    if (!is_unread_) throw std::runtime_error(flushed.message());
  }
}

void Report::progress(std::uint64_t done, const Row& row) {
  progress_.update(done, fmt::format("{} {} {}", options_.measured->facts.name,
                                     tools::format_bytes(row.bytes), name_of(row.mode)));
}

double Report::floor_of(const Row& row) const {
  // With several GPUs each has its own memory, and links have their own limits.
  if (surroundings_.has_several_devices) return 0;
  return floor_us(row.problem, surroundings_.floor.rate());
}

std::vector<std::string> Report::cells(const Row& row) const {
  const Problem& problem = row.problem;
  std::vector<std::string> cells{fmt::format("{}", row.bytes), fmt::format("{}", problem.count),
                                 std::string(unisono::name_of(problem.type))};
  if (options_.measured->facts.reduces) cells.push_back(op_of(row));
  if (options_.measured->facts.has_root()) cells.push_back(fmt::format("{}", problem.root));
  if (options_.buffers.size() > 1) cells.emplace_back(name_of(row.buffers));
  cells.emplace_back(name_of(row.mode));
  cells.emplace_back(problem.in_place ? "in" : "out");
  cells.push_back(fmt::format("{}", row.timing.iterations));
  for (const double time :
       {row.timing.min_us, row.timing.median_us, row.timing.p99_us, row.timing.loop_us}) {
    cells.push_back(time_text(time));
  }
  cells.push_back(fmt::format("{:.3f}", row.algbw_gbps()));
  cells.push_back(fmt::format("{:.3f}", row.busbw_gbps()));
  cells.push_back(wrong_text(row));
  if (is_on_device()) {
    const double floor = floor_of(row);
    cells.push_back(time_text(row.timing.device_median_us));
    cells.push_back(time_text(row.timing.device_loop_us));
    cells.push_back(floor > 0 ? fmt::format("{:.2f}", row.timing.device_loop_us / floor) : "N/A");
  }
  return cells;
}

std::string Report::csv_line(const Row& row) const {
  const Problem& problem = row.problem;
  const Timing& timing = row.timing;
  std::string line = fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.6g},"
      "{:.6g},{},{},{:.3f}",
      problem.measured->facts.name, row.transport, problem.ranks, row.bytes, problem.count,
      unisono::name_of(problem.type), op_of(row), problem.root, problem.in_place, name_of(row.mode),
      name_of(row.buffers), row.algorithm, timing.iterations, timing.min_us, timing.median_us,
      timing.p99_us, timing.loop_us, row.algbw_gbps(), row.busbw_gbps(),
      row.wrong ? wrong_text(row) : "", barrier_of(surroundings_), surroundings_.empty.median_us);
  if (is_on_device()) {
    line += fmt::format(",{},{:.3f},{:.3f},{:.3f}", name_of(options_.ranks_as),
                        timing.device_median_us, timing.device_loop_us, floor_of(row));
  }
  return line + "\n";
}

void Report::add_device(const Row& row, nlohmann::ordered_json& line) const {
  const Timing& timing = row.timing;
  line["memory"] = name_of(options_.memory);
  line["ranks_as"] = name_of(options_.ranks_as);
  line["device"] = surroundings_.device;
  line["gpu_us"] = {{"min", rounded(timing.device_min_us)},
                    {"median", rounded(timing.device_median_us)},
                    {"p99", rounded(timing.device_p99_us)}};
  line["gpu_loop_us"] = rounded(timing.device_loop_us);
  const double floor = floor_of(row);
  if (floor == 0) return;
  line["copy_GBps"] = surroundings_.floor.rate() * 1e-9;
  line["launch_us"] = rounded(surroundings_.floor.launch_us);
  line["floor_us"] = rounded(floor);
  line["floor_ratio"] = timing.device_loop_us / floor;
}

std::string Report::json_line(const Row& row) const {
  const Problem& problem = row.problem;
  const Timing& timing = row.timing;
  nlohmann::ordered_json line;
  line["collective"] = problem.measured->facts.name;
  line["transport"] = row.transport;
  line["ranks"] = problem.ranks;
  line["bytes"] = row.bytes;
  line["count"] = problem.count;
  line["type"] = unisono::name_of(problem.type);
  line["op"] = op_of(row);
  line["in_place"] = problem.in_place;
  line["root"] = problem.root;
  line["time_us"] = {{"min", rounded(timing.min_us)},
                     {"median", rounded(timing.median_us)},
                     {"p99", rounded(timing.p99_us)}};
  line["algbw_GBps"] = row.algbw_gbps();
  line["busbw_GBps"] = row.busbw_gbps();
  line["wrong"] = row.wrong ? nlohmann::ordered_json(*row.wrong) : nlohmann::ordered_json();
  line["mode"] = name_of(row.mode);
  line["buffers"] = name_of(row.buffers);
  line["algorithm"] = row.algorithm;
  line["iterations"] = timing.iterations;
  line["loop_us"] = rounded(timing.loop_us);
  line["barrier"] = barrier_of(surroundings_);
  line["empty_us"] = rounded(surroundings_.empty.median_us);
  if (is_on_device()) add_device(row, line);
  return tools::json_text(line) + "\n";
}

void Report::row(const Row& row) {
  progress_.clear();
  const std::string line = options_.format == Format::kJson  ? json_line(row)
                           : options_.format == Format::kCsv ? csv_line(row)
                                                             : table_.row_line(cells(row));
  std::fputs(line.c_str(), stdout);
  flush();
}

void Report::floor_at_end(const Floor& floor) {
  progress_.clear();
  if (options_.format == Format::kJson) {
    nlohmann::ordered_json line;
    line["floor"] = {{"begin", floor_json(surroundings_.floor)}, {"end", floor_json(floor)}};
    fmt::print("{}\n", tools::json_text(line));
  } else if (options_.format == Format::kTable) {
    const std::string text = floor_text(floor);
    fmt::print("# at the end: {}\n", text.empty() ? "no memory is left to measure it in" : text);
  }
  flush();
}

void Report::footer(std::uint64_t rows, std::uint64_t wrong) {
  progress_.clear();
  if (options_.format != Format::kTable) return;
  const std::string checked = !options_.check ? "not checked"
                              : wrong == 0
                                  ? "every element right"
                                  : tools::counted(wrong, "WRONG element", "WRONG elements");
  fmt::print("# {}, {}\n", tools::counted(rows, "row", "rows"), checked);
  flush();
}

}  // namespace unisono::perf
