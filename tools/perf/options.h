// What `unisono perf` was asked to do. Parsed once, then an immutable value.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/perf/cases.h"
#include "topology/processors.h"
#include "unisono/types.h"

namespace unisono::perf {

enum class Mode : std::uint8_t { kHot, kCold };
enum class BufferKind : std::uint8_t { kPrivate, kAllocated };
enum class Format : std::uint8_t { kTable, kJson, kCsv };
enum class RanksAs : std::uint8_t { kProcesses, kThreads };

std::string_view name_of(Mode mode);
std::string_view name_of(BufferKind kind);
std::string_view name_of(MemoryKind kind);
std::string_view name_of(RanksAs as);

struct Options {
  const Case* measured = nullptr;
  std::vector<std::uint64_t> sizes;  ///< bytes, ascending
  std::uint64_t bytes_max = 0;       ///< what they were to reach
  std::vector<DataType> types;
  std::vector<ReduceOp> ops;  ///< one of no meaning where nothing is reduced
  std::vector<Rank> roots;    ///< kEveryRoot alone: all of them
  std::vector<Mode> modes;
  std::vector<BufferKind> buffers;
  std::vector<bool> places;  ///< in place: no, yes
  MemoryKind memory = MemoryKind::kHost;
  int device = -1;     ///< -1: by the rank's number on its host
  bool floor = false;  ///< measure what a plain copy moves, and compare with it
  RanksAs ranks_as = RanksAs::kProcesses;
  int ranks = 0;  ///< when started alone, where they are given
  bool ranks_given = false;
  int iterations = 0;  ///< 0: by budget
  int warm_up = -1;    ///< -1: by budget
  double budget_ms = 100;
  bool check = true;
  std::string transport, algorithm;
  std::chrono::milliseconds timeout{0};
  Format format = Format::kTable;
};

inline constexpr Rank kEveryRoot = -1;

/// Where should_run is false (--help, a wrong argument) the text is printed already and
/// exit_status is what to end with.
struct Parsed {
  bool should_run = false;
  int exit_status = 0;
  Options options;
};
/// argv[0] is the name of the command, as main() has it.
Parsed parse_options(int argc, char** argv);

/// How many ranks are started where nobody says: the cores that can be busy at once, or where they
/// cannot be read the processors that are allowed.
int default_ranks(const Result<topology::Processors>& processors);

/// The sizes from min to max, multiplied by `factor`, or in steps when `step` is not 0. Errors: an
/// empty or endless list.
Result<std::vector<std::uint64_t>> list_sizes(std::uint64_t min, std::uint64_t max,
                                              std::uint64_t factor, std::uint64_t step);
/// "sum", "prod", "avg", "band", ...; premultiplied sums get the tool's own factor.
Result<ReduceOp> parse_op(const std::string& text);

}  // namespace unisono::perf
