// The command line, in the habits of nccl-tests.
#include "tools/perf/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "comm/selected.h"
#include "config/config.h"
#include "tools/common/command_line.h"
#include "tools/common/invalid.h"
#include "tools/common/output.h"
#include "tools/common/sizes.h"
#include "tools/perf/pattern.h"
#include "topology/allowed_cpus.h"

namespace unisono::perf {
namespace {

constexpr std::size_t kSizesMax = 10000;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 40;
constexpr int kRanksMax = 1024, kDevicesMax = 1023;
constexpr int kIterationsAllowed = 4096;

constexpr std::pair<std::string_view, OpKind> kOpAliases[]{
    {"prod", OpKind::kProduct},
    {"avg", OpKind::kAverage},
    {"mulsum", OpKind::kPremultipliedSum},
    {"band", OpKind::kBitAnd},
    {"bor", OpKind::kBitOr},
    {"bxor", OpKind::kBitXor},
    {"land", OpKind::kLogicalAnd},
    {"lor", OpKind::kLogicalOr},
    {"lxor", OpKind::kLogicalXor},
};

constexpr const char* kOperators =
    "sum prod min max avg premultiplied_sum bit_and bit_or bit_xor logical_and logical_or "
    "logical_xor, or all";

constexpr const char* kFooter = R"(
Examples:
  unisono perf all_reduce                        2 or more local ranks, 4 bytes to 64 MiB
  unisono perf all_reduce -n 4 -b 1M -e 256M -f 2 -d bfloat16
  unisono perf all_gather --buffers both --mode both
  unisono perf all_reduce -d all -o all -e 64K   every type and operator, checked
  unisono perf p2p --transport tcp --json > p2p.jsonl
  unisono run -n 8 -- unisono perf all_to_all    under a launcher (torchrun works as well)

Sizes. BYTES of a row is the whole buffer: the data of all ranks where it is divided into one block
per rank (all_gather, reduce_scatter, gather, scatter, all_to_all), a rank's data otherwise.

Bandwidth, as nccl-tests defines it:
  algbw = BYTES / median time
  busbw = algbw * factor: what a link must carry, comparable between rank counts N
    all_reduce 2(N-1)/N; all_gather reduce_scatter gather scatter all_to_all (N-1)/N; others 1

Times, in microseconds. All ranks begin each iteration behind a barrier of the tool's own, and the
slowest rank counts: min, median and p99 of those, over "iters" iterations (of fewer than 100 the
p99 is the largest). "loop" is nccl-tests' way: calls back to back. An empty operation's time is
printed in the header: every figure contains it.
  hot    the owner rewrites the same input, untimed, before each iteration
  cold   buffers rotate over 4 times the last-level cache, rewritten when they come round

GPU memory (--memory cuda): calls are put into a stream of each rank's. The times above are the
host's, from the call to the end of the stream's work; "gpu us" is the median and "gpu loop us"
the back-to-back time by events in the stream. Hot and cold mean the GPU's cache. With --floor,
where all ranks have one GPU: "x floor" is "gpu loop us" over the time of the best copy of as many
bytes as must be read and written (all_reduce: 2 N for each rank), at a rate measured before.
  unisono perf all_reduce -n 4 --as threads --memory cuda --floor -b 64M -e 1G --mode both

Results are checked against the closed form, every element: the column #wrong; a barrier has none.
The exit status is 1 when any is wrong or the output cannot be written (a reader that leaves, as
head does, ends it quietly), 2 for a wrong command line.

From nccl-tests: -b -e -f -i -w -c -d -o -r mean the same. Its -n (iterations) is --iters or -I
here, because -n is the number of ranks, as in `unisono run`; -g and -t have no meaning here.
)";

/// The raw text of every option; parse_options() turns it into values.
struct Texts {
  std::string collective;
  std::string bytes_min = "4", bytes_max = "64M", step_bytes;
  std::uint64_t step_factor = 4;
  std::string type = "float32", op = "sum", root = "0";
  std::string mode = "hot", buffers, place = "both", timeout;
  std::string memory = "host", device = "local", ranks_as = "processes";
  int check = 1;
  bool json = false, csv = false, in_place = false;
};

std::string collective_names() {
  std::string names;
  for (const Case& one : all_cases()) {
    names += fmt::format("\n  {:18}{}", one.facts.name, one.meaning);
  }
  return names;
}

/// What people who know nccl-tests type here.
void refuse_flags_of_nccl_tests(CLI::App& app) {
  for (const char* names : {"-g,--ngpus", "-t,--nthreads"}) {
    const std::string name(names, 2);
    app.add_option_function<std::string>(
           names,
           [name](const std::string&) {
             throw CLI::ValidationError(name + " has no meaning here; see -n");
           })
        ->group("")
        ->expected(0, 1);
  }
}

void declare(CLI::App& app, Texts& texts, Options& options) {
  app.footer(kFooter);
  app.add_option("collective", texts.collective, "What to measure:" + collective_names())
      ->required();
  app.add_option("-b,--minbytes", texts.bytes_min, "Smallest size")->capture_default_str();
  app.add_option("-e,--maxbytes", texts.bytes_max, "Largest size")->capture_default_str();
  auto* factor = app.add_option("-f,--stepfactor", texts.step_factor,
                                "Each size is the one before times this");
  factor->capture_default_str();
  app.add_option("-i,--stepbytes", texts.step_bytes, "Each size is the one before plus this")
      ->excludes(factor);
  app.add_option("-n,--ranks", options.ranks,
                 "Ranks to start on this machine (default: its cores, as many as a CPU quota lets "
                 "be busy, at least 2); not under a launcher");
  app.add_option("-I,--iters", options.iterations,
                 "Timed iterations of each row, up to 4096 (default: as many as fit the budget)")
      ->check(CLI::Range(1, kIterationsAllowed));
  app.add_option("-w,--warmup_iters", options.warm_up, "Untimed iterations of each row")
      ->check(CLI::Range(0, kIterationsAllowed));
  app.add_option("--budget-ms", options.budget_ms, "Time for the iterations of one row")
      ->check(CLI::Range(1.0, 1e6))
      ->check(tools::refuse_nan)
      ->capture_default_str();
  app.add_option("-c,--check", texts.check, "1: check every element; 0: do not")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("-d,--datatype", texts.type, "int8 ... complex128, half, float, ... or all")
      ->capture_default_str();
  app.add_option("-o,--op", texts.op, kOperators)->capture_default_str();
  app.add_option("-r,--root", texts.root, "Root of rooted collectives, or all")
      ->capture_default_str();
  app.add_flag("--in-place", texts.in_place, "Only in place");
  app.add_option("--place", texts.place, "Where the output goes")
      ->check(CLI::IsMember({"in", "out", "both"}))
      ->excludes("--in-place")
      ->capture_default_str();
  app.add_option("--mode", texts.mode, "State of the caches")
      ->check(CLI::IsMember({"hot", "cold", "both"}))
      ->capture_default_str();
  app.add_option("--buffers", texts.buffers,
                 "private: ordinary memory (on a GPU: cuMemAlloc); allocated: from "
                 "unisono::allocate (default: private, on a GPU allocated)")
      ->check(CLI::IsMember({"private", "allocated", "both"}));
  app.add_option("--memory", texts.memory, "Where the buffers are: host, or cuda for a GPU")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_option("--device", texts.device,
                 "GPU of every rank, among those of CUDA_VISIBLE_DEVICES; local: LOCAL_RANK modulo "
                 "their number (threads: the rank modulo it)")
      ->capture_default_str();
  app.add_flag("--floor", options.floor,
               "Measure the GPU's copy rate, before and after, to compare with it (--memory cuda)");
  app.add_option("--as", texts.ranks_as, "What the local ranks are: processes, or threads of one")
      ->check(CLI::IsMember({"processes", "threads"}))
      ->capture_default_str();
  app.add_option("--transport", options.transport, list_transports() + " (default: what is best)");
  app.add_option("--algorithm", options.algorithm,
                 "One of `unisono plan --list` (default: selection decides)");
  app.add_option("--timeout", texts.timeout, "Seconds after which a call fails (default: 600)");
  auto* json = app.add_flag("--json", texts.json, "One JSON object a line");
  app.add_flag("--csv", texts.csv, "Comma-separated values")->excludes(json);
  refuse_flags_of_nccl_tests(app);
}

Result<std::vector<DataType>> parse_types(const std::string& text) {
  std::vector<DataType> types;
  if (text == "all") {
    for (int i = 0; i < kDataTypeCount; ++i) types.push_back(static_cast<DataType>(i));
    return types;
  }
  DataType type{};
  if (!parse(text, &type)) {
    std::string known;
    for (int i = 0; i < kDataTypeCount; ++i) {
      known += fmt::format(" {}", unisono::name_of(static_cast<DataType>(i)));
    }
    return tools::invalid("--datatype: '{}' is none of:{} all", text.substr(0, 64), known);
  }
  types.push_back(type);
  return types;
}

Result<std::vector<ReduceOp>> parse_ops(const std::string& text) {
  std::vector<ReduceOp> ops;
  if (text != "all") {
    UNISONO_ASSIGN(ReduceOp op, parse_op(text));
    ops.push_back(op);
    return ops;
  }
  for (int i = 0; i < kOpKindCount; ++i) {
    if (static_cast<OpKind>(i) == OpKind::kUser) continue;
    UNISONO_ASSIGN(ReduceOp op, parse_op(std::string(unisono::name_of(static_cast<OpKind>(i)))));
    ops.push_back(op);
  }
  return ops;
}

template <typename T>
std::vector<T> one_or_both(const std::string& text, std::string_view both, std::string_view first,
                           T first_value, T second_value) {
  if (text == both) return {first_value, second_value};
  return {text == first ? first_value : second_value};
}

std::vector<bool> places_of(const Case& measured, const Texts& texts) {
  const std::string wanted = texts.in_place ? "in" : texts.place;
  if (measured.facts.in_place == InPlace::kAlways) return {true};
  if (!has_in_place_form(measured)) return {false};
  return one_or_both<bool>(wanted, "both", "out", false, true);
}

Status fill_memory(const Texts& texts, Options& options) {
  const bool is_cuda = texts.memory == "cuda";
  options.memory = is_cuda ? MemoryKind::kCuda : MemoryKind::kHost;
  if (!is_cuda && (texts.device != "local" || options.floor)) {
    return tools::invalid("{} means something with --memory cuda alone",
                          options.floor ? "--floor" : "--device");
  }
  if (texts.device != "local") {
    UNISONO_ASSIGN(const auto device,
                   tools::parse_integer(texts.device, "--device", 0, kDevicesMax));
    options.device = static_cast<int>(device);
  }
  options.ranks_as = texts.ranks_as == "threads" ? RanksAs::kThreads : RanksAs::kProcesses;
  const std::string buffers = !texts.buffers.empty() ? texts.buffers
                              : is_cuda              ? "allocated"
                                                     : "private";
  options.buffers =
      one_or_both(buffers, "both", "private", BufferKind::kPrivate, BufferKind::kAllocated);
  return {};
}

Status check_combination(const Options& options, const Texts& texts) {
  const bool is_any_meaningful =
      std::any_of(options.types.begin(), options.types.end(), [&](DataType type) {
        return std::any_of(options.ops.begin(), options.ops.end(),
                           [&](ReduceOp op) { return applies(*options.measured, op.kind, type); });
      });
  if (options.measured->facts.reduces && !is_any_meaningful) {
    return tools::invalid("operator '{}' has no meaning on type '{}' in {}", texts.op, texts.type,
                          options.measured->facts.name);
  }
  if ((texts.in_place || texts.place == "in") && !has_in_place_form(*options.measured)) {
    return tools::invalid("{} has no in-place form", options.measured->facts.name);
  }
  return {};
}

Status fill(const Texts& texts, Options& options) {
  options.measured = find_case(texts.collective);
  if (options.measured == nullptr) {
    return tools::invalid("'{}' is no collective; one of:{}", texts.collective.substr(0, 64),
                          collective_names());
  }
  if (!options.transport.empty()) UNISONO_TRY(check_transport(options.transport));
  if (Collective collective{}; parse(options.measured->facts.name, &collective)) {
    UNISONO_TRY(check_algorithm(collective, options.algorithm));
  } else if (!options.algorithm.empty()) {
    return tools::invalid("--algorithm: {} goes to one peer; no algorithm is chosen for it",
                          options.measured->facts.name);
  }
  const tools::SizeBounds bounds{.min = 1, .max = kBytesMax};
  UNISONO_ASSIGN(const auto min, tools::parse_bytes(texts.bytes_min, "--minbytes", bounds));
  UNISONO_ASSIGN(const auto max, tools::parse_bytes(texts.bytes_max, "--maxbytes", bounds));
  std::uint64_t step = 0;
  if (!texts.step_bytes.empty()) {
    UNISONO_ASSIGN(step, tools::parse_bytes(texts.step_bytes, "--stepbytes", bounds));
  }
  options.bytes_max = max;
  UNISONO_ASSIGN(options.sizes, list_sizes(min, max, texts.step_factor, step));
  UNISONO_ASSIGN(options.types, parse_types(texts.type));
  UNISONO_ASSIGN(options.ops, parse_ops(texts.op));
  options.roots = {kEveryRoot};
  if (texts.root != "all") {
    UNISONO_ASSIGN(const auto root, tools::parse_integer(texts.root, "--root", 0, kRanksMax));
    options.roots = {static_cast<Rank>(root)};
  }
  if (!texts.timeout.empty()) {
    UNISONO_ASSIGN(const double seconds, tools::parse_seconds(texts.timeout, "--timeout", 86400));
    options.timeout = std::chrono::milliseconds(static_cast<long>(seconds * 1000));
    if (options.timeout.count() == 0) {
      return tools::invalid("--timeout: '{}' is less than a millisecond, the shortest limit",
                            texts.timeout.substr(0, 64));
    }
  }
  options.modes = one_or_both(texts.mode, "both", "hot", Mode::kHot, Mode::kCold);
  UNISONO_TRY(fill_memory(texts, options));
  options.places = places_of(*options.measured, texts);
  // Nothing comes out of a barrier.
  options.check = texts.check != 0 && options.measured->facts.has_buffers();
  options.format = texts.json ? Format::kJson : texts.csv ? Format::kCsv : Format::kTable;
  if (options.ranks_given && (options.ranks < 1 || options.ranks > kRanksMax)) {
    return tools::invalid("--ranks: {} is outside 1 to {}", options.ranks, kRanksMax);
  }
  return check_combination(options, texts);
}

}  // namespace

std::string_view name_of(Mode mode) { return mode == Mode::kHot ? "hot" : "cold"; }
std::string_view name_of(BufferKind kind) {
  return kind == BufferKind::kPrivate ? "private" : "allocated";
}
std::string_view name_of(MemoryKind kind) { return kind == MemoryKind::kHost ? "host" : "cuda"; }
std::string_view name_of(RanksAs as) { return as == RanksAs::kThreads ? "threads" : "processes"; }

Result<std::vector<std::uint64_t>> list_sizes(std::uint64_t min, std::uint64_t max,
                                              std::uint64_t factor, std::uint64_t step) {
  if (min > max) {
    return tools::invalid("--minbytes {} is above --maxbytes {}", tools::format_bytes(min),
                          tools::format_bytes(max));
  }
  if (step == 0 && factor < 2) {
    return tools::invalid("--stepfactor: {} never ends; at least 2", factor);
  }
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = min; bytes <= max;) {
    if (sizes.size() == kSizesMax) {
      return tools::invalid("more than {} sizes; take a larger --stepbytes", kSizesMax);
    }
    sizes.push_back(bytes);
    if (step == 0 && bytes > max / factor) break;
    bytes = step != 0 ? bytes + step : bytes * factor;
  }
  return sizes;
}

int default_ranks(const Result<topology::Processors>& processors) {
  const int cores =
      processors ? processors->usable_core_count()
                 : static_cast<int>(topology::list_cpus(topology::read_allowed_cpus()).size());
  return std::clamp(cores, 2, kRanksMax);
}

Result<ReduceOp> parse_op(const std::string& text) {
  for (int i = 0; i < kOpKindCount; ++i) {
    const OpKind kind = static_cast<OpKind>(i);
    if (kind == OpKind::kUser) continue;
    const bool is_alias =
        std::any_of(std::begin(kOpAliases), std::end(kOpAliases),
                    [&](const auto& alias) { return alias.second == kind && alias.first == text; });
    if (!is_alias && unisono::name_of(kind) != text) continue;
    if (kind == OpKind::kPremultipliedSum) return ops::premultiplied_sum(kPremultiplier);
    return ReduceOp{kind};
  }
  return tools::invalid("--op: '{}' is none of: {}", text.substr(0, 64), kOperators);
}

Parsed parse_options(int argc, char** argv) {
  CLI::App app("Measures and checks one collective.", "unisono perf");
  Texts texts;
  Parsed parsed;
  declare(app, texts, parsed.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = tools::finish_parsing(app, error);
    return parsed;
  }
  parsed.options.ranks_given = app.count("--ranks") > 0;
  if (const Status status = fill(texts, parsed.options); !status) {
    parsed.exit_status = tools::fail("unisono perf", status, 2);
    return parsed;
  }
  parsed.should_run = true;
  return parsed;
}

}  // namespace unisono::perf
