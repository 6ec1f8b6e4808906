#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "base/output_file.h"
#include "config/config.h"
#include "tools/common/command_line.h"
#include "tools/common/commands.h"
#include "tools/common/invalid.h"
#include "tools/common/local_ranks.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/common/terminal.h"
#include "tools/info/machine.h"
#include "tools/tune/measure.h"
#include "tools/tune/rows.h"
#include "unisono/unisono.hpp"

namespace unisono {
namespace {

using algorithms::Link;

struct Options {
  int ranks = 2;
  std::string transport;
  std::string output = "unisono-tuning.txt";
  std::string bytes_max_text = "16M";
  std::uint64_t bytes_max = 0;
  double budget_ms = 20;
};

constexpr Link kLinks[]{Link::kShm, Link::kUnix, Link::kVerbs, Link::kTcp};
// More would need more scratch memory than ranks have unless they are told.
constexpr std::uint64_t kBytesMax = std::uint64_t{256} << 20;

std::vector<std::string> names_of_links() {
  std::vector<std::string> names;
  for (const Link link : kLinks) names.emplace_back(algorithms::name_of(link));
  return names;
}

void declare(CLI::App& app, Options& options) {
  app.add_option("-n,--ranks", options.ranks, "Ranks to measure with; the rows are for as many")
      ->check(CLI::Range(2, 256))
      ->capture_default_str();
  app.add_option("--transport", options.transport, "Only this one (default: all usable ones)")
      ->check(CLI::IsMember(names_of_links()));
  app.add_option("-o,--output", options.output, "File to write")->capture_default_str();
  app.add_option("-e,--maxbytes", options.bytes_max_text, "Largest size, 64 to 256M")
      ->capture_default_str();
  app.add_option("--budget-ms", options.budget_ms, "Time for each way of each size")
      ->check(CLI::Range(0.1, 10000.0))
      ->check(tools::refuse_nan)
      ->capture_default_str();
}

// The transports to measure. An unusable one is an error only where it was asked for.
Result<std::vector<Link>> list_links(const std::string& wanted, const Config& config) {
  std::vector<Link> links;
  const std::vector<info::TransportRow> rows = info::probe_transports(config);
  for (const Link link : kLinks) {
    const std::string name(algorithms::name_of(link));
    if (!wanted.empty() && wanted != name) continue;
    for (const info::TransportRow& row : rows) {
      if (row.name != name) continue;
      if (row.probe.usable) {
        links.push_back(link);
      } else if (!wanted.empty()) {
        return Status(ErrorCode::kUnsupported, "transport " + name + ": " + row.probe.reason);
      } else {
        std::fprintf(stderr, "unisono tune: without %s: %s\n", name.c_str(),
                     row.probe.reason.c_str());
      }
    }
  }
  if (links.empty()) return Status(ErrorCode::kUnsupported, "no transport is usable here");
  return links;
}

Status of_output(const Status& status) {
  return status ? status : Status(status.code(), "--output: " + status.message());
}

// Times taken beside other work say more about that work.
void warn_if_busy() {
  double load = 0;
  if (::getloadavg(&load, 1) == 1 && load > 1) {
    std::fprintf(stderr,
                 "unisono tune: the machine is busy (load %.1f): better measure when it is idle\n",
                 load);
  }
}

// What a reader of the file wants to know of its origin, as comments.
std::string header_of(const Options& options, bool shared_cores, const std::string& command) {
  char host[256] = "unknown host";
  ::gethostname(host, sizeof host - 1);
  char date[64] = "";
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  if (::gmtime_r(&now, &parts) != nullptr) {
    std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &parts);
  }
  return "# Selection table of unisono " + std::string(version()) + ", measured on " + date +
         " on " + host + ".\n# " + std::to_string(options.ranks) + " ranks, " +
         (shared_cores ? "more than processors" : "a processor for each") + ": " + command +
         "\n# The first row that matches decides; the default table follows.\n";
}

Status write_table(const Options& options, const std::string& header,
                   const std::vector<algorithms::SelectionRow>& rows) {
  algorithms::SelectionTable table;
  for (const algorithms::SelectionRow& row : rows) table.append(row);
  return of_output(write_output(options.output, header + table.to_text()));
}

Status run(const Options& options, const Config& config, const std::string& command) {
  // Before minutes of measuring, not after them.
  UNISONO_TRY(of_output(check_output(options.output)));
  UNISONO_ASSIGN(const std::vector<Link> links, list_links(options.transport, config));
  const std::vector<std::size_t> sizes = tune::list_sizes(options.bytes_max);
  std::vector<tune::Task> tasks = tune::list_tasks(links, options.ranks, sizes);
  const bool shared_cores = info::would_share_cores(options.ranks);
  std::string names;
  for (const Link link : links) {
    if (!names.empty()) names += ", ";
    names += algorithms::name_of(link);
  }
  std::printf("%zu measurements with %d ranks%s over %s, 64 bytes to %s\n", tasks.size(),
              options.ranks, shared_cores ? " (more than processors)" : "", names.c_str(),
              tools::format_bytes(sizes.back()).c_str());
  warn_if_busy();
  // Ranks are forked: rank 0 of each job goes on with a copy of this line.
  tools::ProgressLine line(stderr, tasks.size());
  const Status measured = tune::measure(
      tasks, {.ranks = options.ranks,
              .seconds_per_task = options.budget_ms / 1000,
              .progress = [&](std::size_t done, std::string_view what) { line.update(done, what); },
              .progress_ends = [&] { line.clear(); }});
  const auto rows = tune::best_rows(tasks, options.ranks, shared_cores);
  if (!measured.ok() && rows.empty()) return measured;
  UNISONO_TRY(write_table(options, header_of(options, shared_cores, command), rows));
  std::printf(
      "%s: %s\n"
      "Use it, the same on all ranks:  UNISONO_TUNING=%s unisono run -n %d -- ./program\n"
      "What it chooses, and why:       UNISONO_TUNING=%s unisono info --why all_reduce 1M -n %d\n",
      options.output.c_str(), tools::counted(rows.size(), "row", "rows").c_str(),
      options.output.c_str(), options.ranks, options.output.c_str(), options.ranks);
  if (measured.ok()) return measured;
  return Status(measured.code(), measured.message() + "; the table is without that");
}

}  // namespace

int tune_main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Measures every way to run each collective between ranks of this machine and writes the\n"
      "selection table that UNISONO_TUNING names. Takes minutes; a small -e makes it quick.\n"
      "Tables of several rank counts may be joined with cat.",
      "unisono tune"};
  app.footer(
      "Examples:\n"
      "  unisono tune -n 4 -o tuning.txt\n"
      "  UNISONO_TUNING=tuning.txt unisono run -n 4 -- ./train\n"
      "  unisono tune -n 2 --transport tcp -e 64K --budget-ms 5    a first look");
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return tools::finish_parsing(app, error);
  }
  const Result<Config> config = Config::from_environment();
  if (!config) return tools::fail("unisono tune", config.error(), 2);
  if (const int launched = tools::launched_ranks(); launched > 1) {
    return tools::fail(
        "unisono tune",
        tools::invalid("a launcher started it {} times, but it starts its own ranks: "
                       "start it once, without a launcher",
                       launched),
        2);
  }
  const auto bytes = tools::parse_bytes(options.bytes_max_text, "--maxbytes", {64, kBytesMax});
  if (!bytes) return tools::fail("unisono tune", bytes.error(), 2);
  options.bytes_max = *bytes;
  std::string command = "unisono tune";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  for (char& c : command) {
    if (c < ' ') c = '?';  // it must stay one line of comment
  }
  const Status status = run(options, *config, command);
  return tools::finish_output("unisono tune",
                              status.ok() ? 0 : tools::fail("unisono tune", status, 1));
}

}  // namespace unisono
