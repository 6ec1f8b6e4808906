#include "tools/tune/tune_tool.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "algorithms/selection.h"
#include "base/clock.h"
#include "tools/common/sizes.h"
#include "tools/common/terminal.h"
#include "unisono/communicator.h"

namespace unisono {
namespace {

struct Options {
  int ranks = 2;
  std::string transport = "tcp";
  std::string output = "unisono-tuning.txt";
  std::uint64_t bytes_max = 16 << 20;
  double seconds_per_point = 0.02;
};

constexpr Collective kTuned[]{
    Collective::kAllReduce,     Collective::kReduce, Collective::kBroadcast, Collective::kAllGather,
    Collective::kReduceScatter, Collective::kGather, Collective::kScatter,   Collective::kAllToAll};

bool cuts_by_rank(Collective collective) {
  return collective != Collective::kAllReduce && collective != Collective::kReduce &&
         collective != Collective::kBroadcast;
}

// Back to back, slowest rank, best of three rounds: what selection should minimise.
double time_call(Communicator& comm, const Call& call, double seconds) {
  comm.run(call);
  double best = 1e9;
  int iterations = 1;
  for (int round = 0; round < 3; ++round) {
    comm.barrier();
    const TimePoint began = Clock::now();
    for (int i = 0; i < iterations; ++i) comm.run(call);
    double mine = std::chrono::duration<double>(Clock::now() - began).count() / iterations;
    comm.all_reduce(&mine, &mine, 1, DataType::kFloat64, max);
    best = std::min(best, mine);
    iterations = std::clamp(static_cast<int>(seconds / 3 / std::max(mine, 1e-7)), 1, 2000);
  }
  return best;
}

algorithms::Link link_named(const std::string& transport) {
  using algorithms::Link;
  for (const Link link : {Link::kLoopback, Link::kUnix, Link::kTcp}) {
    if (transport == algorithms::name_of(link)) return link;
  }
  return Link::kShm;
}

// The fastest algorithm for one collective and size; rows of equal neighbours are merged.
algorithms::SelectionRow best_row(Communicator& comm, Collective collective, std::size_t bytes,
                                  const Options& options, std::vector<std::byte>& in,
                                  std::vector<std::byte>& out) {
  algorithms::SelectionRow row;
  row.collective = collective;
  row.any_link = false;
  row.link = link_named(options.transport);
  row.ranks_min = row.ranks_max = comm.size();
  row.bytes_max = bytes;
  const std::size_t blocks = cuts_by_rank(collective) ? static_cast<std::size_t>(comm.size()) : 1;
  Call call;
  call.collective = collective;
  call.in = in.data();
  call.out = collective == Collective::kBroadcast ? in.data() : out.data();
  call.type = DataType::kFloat32;
  call.count = std::max<std::size_t>(bytes / 4 / blocks, 1);
  call.op = sum;
  double best = 1e9;
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    plan::PlanRequest request;
    request.collective = collective;
    request.ranks = comm.size();
    if (algorithm.collective != collective || !algorithm.refuses(request).empty()) continue;
    call.options.algorithm = algorithm.name;
    const double seconds = time_call(comm, call, options.seconds_per_point);
    if (seconds < best * 0.97) {
      best = seconds;
      row.algorithm = algorithm.name;
      const algorithms::SelectionTable defaults = algorithms::SelectionTable::defaults();
      for (const algorithms::SelectionRow& known : defaults.rows()) {
        if (known.collective == collective && known.algorithm == row.algorithm) {
          row.chunk_bytes = known.chunk_bytes;
          break;
        }
      }
    }
  }
  return row;
}

void tune(Communicator& comm, const Options& options) {
  std::vector<std::byte> in(options.bytes_max + 64);
  std::vector<std::byte> out(options.bytes_max + 64);
  std::vector<algorithms::SelectionRow> rows;
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 64; bytes <= options.bytes_max; bytes *= 4) sizes.push_back(bytes);
  tools::ProgressLine progress(comm.rank() == 0 ? stderr : nullptr,
                               sizes.size() * std::size(kTuned));
  std::uint64_t done = 0;
  for (const Collective collective : kTuned) {
    for (const std::size_t bytes : sizes) {
      progress.update(done++, std::string(name_of(collective)) + " " + tools::format_bytes(bytes));
      algorithms::SelectionRow row = best_row(comm, collective, bytes, options, in, out);
      // Halfway to the next size, on the logarithmic scale.
      row.bytes_max = bytes == sizes.back() ? ~std::size_t{0} : bytes * 2;
      if (!rows.empty() && rows.back().collective == collective &&
          rows.back().algorithm == row.algorithm && rows.back().chunk_bytes == row.chunk_bytes) {
        rows.back().bytes_max = row.bytes_max;
      } else {
        rows.push_back(std::move(row));
      }
    }
  }
  progress.clear();
  if (comm.rank() != 0) return;
  algorithms::SelectionTable table;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) table.prepend(*row);
  std::ofstream file(options.output);
  file << "# unisono tune: " << comm.size() << " ranks, transport " << options.transport << "\n"
       << table.to_text();
  if (!file.flush()) {
    throw Error(Status(ErrorCode::kSystem, options.output + " cannot be written"));
  }
  std::printf("%s: %zu rows; use it with UNISONO_TUNING=%s\n", options.output.c_str(), rows.size(),
              options.output.c_str());
}

}  // namespace

int tune_main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Measures every algorithm with local ranks and writes a selection table.\n"
      "Collectives of ranks that share memory run natively and need no table; it is for\n"
      "streams.\n"
      "Example:\n  unisono tune -n 4 --transport tcp -o tuning.txt\n"
      "  UNISONO_TUNING=tuning.txt unisono run -n 4 ./train",
      "unisono tune"};
  app.add_option("-n,--ranks", options.ranks, "local ranks")->check(CLI::Range(2, 256));
  app.add_option("--transport", options.transport, "tcp, unix or shm lanes")
      ->check(CLI::IsMember({"tcp", "unix", "shm"}));
  app.add_option("-o,--output", options.output, "file to write");
  std::string max_text;
  app.add_option("-e,--maxbytes", max_text, "largest size, for example 16M");
  CLI11_PARSE(app, argc, argv);
  if (!max_text.empty()) {
    const auto bytes = tools::parse_bytes(max_text, "--maxbytes", {64, std::uint64_t{1} << 32});
    if (!bytes) {
      std::fprintf(stderr, "unisono tune: %s\n", bytes.error().message().c_str());
      return 2;
    }
    options.bytes_max = *bytes;
  }
  try {
    spawn(options.ranks, [&](Communicator& comm) { tune(comm, options); },
          {.as = SpawnOptions::As::kProcesses, .transport = options.transport});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace unisono
