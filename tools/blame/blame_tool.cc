#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "base/errno_text.h"
#include "recorder/trace.h"
#include "tools/blame/find_records.h"
#include "tools/blame/report.h"
#include "tools/common/command_line.h"
#include "tools/common/commands.h"
#include "tools/common/invalid.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/common/terminal.h"

namespace unisono {
namespace {

struct BlameOptions {
  std::string place;
  std::string job;
  std::string trace;
  bool json = false;
};

std::int64_t realtime_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool is_folder(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// Every record of a process is open until all are read.
void raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// A directory may be called by a number; it is the one that is there then.
Result<blame::Found> find(const BlameOptions& options) {
  if (is_folder(options.place)) return blame::find_in_folder(options.place, options.job);
  const Result<std::int64_t> pid = tools::parse_integer(options.place, "PID", 1, 1 << 30);
  if (!pid) {
    return tools::invalid("{} is no directory and no process number", options.place);
  }
  return blame::find_of_process(static_cast<int>(*pid), options.job);
}

Status write_trace(const blame::Found& found, const std::string& path) {
  std::vector<recorder::RankRecord> records;
  for (const recorder::Witness& each : found.witnesses) records.push_back(each.record);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << recorder::trace_of(records);
  file.close();
  if (file) return Status();
  return Status(ErrorCode::kSystem, path + ": cannot be written: " + errno_text(errno));
}

void declare(CLI::App& app, BlameOptions& options) {
  app.add_option("directory-or-process", options.place,
                 "The directory that UNISONO_RECORDER named, or the number of a process: a rank, "
                 "or `unisono run`")
      ->type_name("DIR|PID")
      ->required();
  app.add_option("--job", options.job,
                 "Of several jobs this one (default: the one that began last)")
      ->type_name("ID");
  app.add_option("--trace", options.trace,
                 "Also write what the records hold as a trace for ui.perfetto.dev or "
                 "chrome://tracing")
      ->type_name("FILE");
  app.add_flag("--json", options.json, "One line of JSON in the place of text");
}

}  // namespace

int blame_main(int argc, char** argv) {
  BlameOptions options;
  CLI::App app{
      "Says which rank of a job stopped first, in what, and who waits for whom; of a job that\n"
      "lives, who is missing now. It reads what each rank has recorded of its last 4096\n"
      "operations, which outlives the process.",
      "unisono blame"};
  app.footer(
      "Records are always made. They are memory that `unisono run` holds, or that of the rank;\n"
      "UNISONO_RECORDER=DIR makes files of them, one of each rank.\n"
      "\n"
      "Examples:\n"
      "  unisono blame $(pgrep -of 'unisono run')   who is missing now\n"
      "  UNISONO_RECORDER=./records unisono run -n 4 -- ./train\n"
      "  unisono blame ./records                    after the job, for all hosts' files\n"
      "  unisono blame ./records --trace job.json   the same for ui.perfetto.dev\n"
      "  unisono blame ./records --job 8a061c7c...  one of several, which are listed\n"
      "\n"
      "Ends with 0 where it could tell, 1 where there are no records, 2 for a wrong command line.");
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return tools::finish_parsing(app, error);
  }
  raise_open_files();
  const Result<blame::Found> found = find(options);
  if (!found) return tools::fail("unisono blame", found.error(), 1);
  if (!options.trace.empty()) {
    if (const Status written = write_trace(*found, options.trace); !written.ok()) {
      return tools::fail("unisono blame", written, 1);
    }
  }
  const std::int64_t now_ns = realtime_now_ns();
  const std::string report =
      options.json ? blame::report_json(*found, now_ns)
                   : blame::report_text(*found, now_ns, tools::wants_colour(STDOUT_FILENO));
  std::fputs(report.c_str(), stdout);
  return tools::finish_output("unisono blame", 0);
}

}  // namespace unisono
