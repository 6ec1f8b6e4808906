// The table of collectives and the few functions its rows share.
#include "tools/perf/cases.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

namespace unisono::perf {
namespace {

// ---- Blocks ---------------------------------------------------------------------------------

/// What an uneven block has more or less than the others; even ones exactly cancel odd ones.
std::size_t shift_of(const Problem& problem) {
  return problem.measured->uneven ? problem.count / 2 : 0;
}

/// Elements of rank r's block. Neighbours differ, the sum over all ranks is ranks * count.
std::size_t block_of(const Problem& problem, Rank r) {
  const Rank paired = problem.ranks - problem.ranks % 2;
  if (r >= paired) return problem.count;
  return r % 2 == 0 ? problem.count + shift_of(problem) : problem.count - shift_of(problem);
}
std::size_t start_of(const Problem& problem, Rank r) {
  std::size_t start = 0;
  for (Rank i = 0; i < r; ++i) start += block_of(problem, i);
  return start;
}

/// Elements that go from one rank to another in an uneven all-to-all: every rank sends and
/// receives ranks * count altogether.
std::size_t pair_of(const Problem& problem, Rank source, Rank target) {
  const Rank paired = problem.ranks - problem.ranks % 2;
  if (source >= paired || target >= paired) return problem.count;
  const std::size_t shift = shift_of(problem);
  return (source + target) % 2 == 0 ? problem.count + shift : problem.count - shift;
}
std::size_t pair_start(const Problem& problem, Rank source, Rank target) {
  std::size_t start = 0;
  for (Rank i = 0; i < target; ++i) start += pair_of(problem, source, i);
  return start;
}

Rank next(const Problem& p) { return (p.rank + 1) % p.ranks; }
Rank previous(const Problem& p) { return (p.rank + p.ranks - 1) % p.ranks; }
bool is_root(const Problem& p) { return p.rank == p.root; }

// ---- Inputs ---------------------------------------------------------------------------------

std::size_t in_nothing(const Problem&) { return 0; }
std::size_t in_own(const Problem& p) { return p.count; }
std::size_t in_own_block(const Problem& p) { return block_of(p, p.rank); }
std::size_t in_all(const Problem& p) { return p.count * static_cast<std::size_t>(p.ranks); }
std::size_t in_at_root(const Problem& p) { return is_root(p) ? p.count : 0; }
std::size_t in_all_at_root(const Problem& p) { return is_root(p) ? in_all(p) : 0; }
std::size_t in_of_pair(const Problem& p) { return p.rank < 2 ? p.count : 0; }

// ---- Results --------------------------------------------------------------------------------

using Results = std::vector<Expected>;

Results expect_nothing(const Problem&) { return {}; }
Results expect_reduced(const Problem& p) { return {{0, p.count, 0, p.ranks, 0}}; }
Results expect_reduced_at_root(const Problem& p) {
  return is_root(p) ? expect_reduced(p) : Results{};
}
Results expect_prefix(const Problem& p) { return {{0, p.count, 0, p.rank + 1, 0}}; }
Results expect_prefix_before(const Problem& p) {
  return p.rank == 0 ? Results{} : Results{{0, p.count, 0, p.rank, 0}};
}
Results expect_reduced_block(const Problem& p) {
  return {{0, block_of(p, p.rank), 0, p.ranks, start_of(p, p.rank)}};
}
Results expect_of_root(const Problem& p) { return {{0, p.count, p.root, p.root + 1, 0}}; }
Results expect_block_of_root(const Problem& p) {
  return {{0, block_of(p, p.rank), p.root, p.root + 1, start_of(p, p.rank)}};
}
Results expect_gathered(const Problem& p) {
  Results all;
  for (Rank r = 0; r < p.ranks; ++r) all.push_back({start_of(p, r), block_of(p, r), r, r + 1, 0});
  return all;
}
Results expect_gathered_at_root(const Problem& p) {
  return is_root(p) ? expect_gathered(p) : Results{};
}
Results expect_exchanged(const Problem& p) {
  Results all;
  std::size_t offset = 0;
  for (Rank r = 0; r < p.ranks; ++r) {
    const std::size_t count = pair_of(p, r, p.rank);
    all.push_back({offset, count, r, r + 1, pair_start(p, r, p.rank)});
    offset += count;
  }
  return all;
}
Results expect_of_previous(const Problem& p) {
  return {{0, p.count, previous(p), previous(p) + 1, 0}};
}
Results expect_of_partner(const Problem& p) {
  if (p.rank > 1) return {};
  return {{0, p.count, 1 - p.rank, 2 - p.rank, 0}};
}

// ---- Calls ----------------------------------------------------------------------------------

template <Collective kCollective>
void run_plain(Communicator& communicator, const Problem& p, const void* in, void* out) {
  communicator.run({.collective = kCollective,
                    .in = in,
                    .out = out,
                    .count = p.count,
                    .type = p.type,
                    .op = p.op,
                    .root = p.root,
                    .options = p.options});
}

template <Collective kCollective>
void run_uneven(Communicator& communicator, const Problem& p, const void* in, void* out) {
  communicator.run({.collective = kCollective,
                    .in = in,
                    .out = out,
                    .count = block_of(p, p.rank),
                    .type = p.type,
                    .op = p.op,
                    .root = p.root,
                    .in_counts = p.in_counts,
                    .in_displacements = p.in_displacements,
                    .out_counts = p.out_counts,
                    .out_displacements = p.out_displacements,
                    .options = p.options});
}

void run_broadcast(Communicator& communicator, const Problem& p, const void*, void* out) {
  communicator.broadcast(out, p.count, p.type, p.root, p.options);
}

void run_barrier(Communicator& communicator, const Problem& p, const void*, void*) {
  communicator.barrier(p.options);
}

void run_send_receive(Communicator& communicator, const Problem& p, const void* in, void* out) {
  const std::array<Call, 2> calls{Call{.collective = Collective::kReceive,
                                       .out = out,
                                       .count = p.count,
                                       .type = p.type,
                                       .peer = previous(p),
                                       .options = p.options},
                                  Call{.collective = Collective::kSend,
                                       .in = in,
                                       .count = p.count,
                                       .type = p.type,
                                       .peer = next(p),
                                       .options = p.options}};
  communicator.group(calls);
}

void run_ping_pong(Communicator& communicator, const Problem& p, const void* in, void* out) {
  if (p.rank > 1) return;
  const Rank partner = 1 - p.rank;
  if (p.rank == 0) communicator.send(in, p.count, p.type, partner, 0, p.options);
  communicator.receive(out, p.count, p.type, partner, 0, p.options);
  if (p.rank == 1) communicator.send(in, p.count, p.type, partner, 0, p.options);
}

// ---- Bandwidth: bytes that must cross a rank's link, per byte of the row (nccl-tests) ---------

double bus_whole(int) { return 1; }
double bus_others(int ranks) { return static_cast<double>(ranks - 1) / ranks; }
double bus_twice_others(int ranks) { return 2 * bus_others(ranks); }

// ---- Blocks through the memory of a device that all ranks share ------------------------------

double memory_nothing(int, bool) { return 0; }
double memory_read_and_written(int k, bool) { return 2.0 * k; }
double memory_to_root(int k, bool) { return k + 1; }
// The root's own block stays where it is.
double memory_through_root(int k, bool in_place) { return 2.0 * (in_place ? k - 1 : k); }
// One is read, all others are written.
double memory_from_root(int k, bool) { return k; }
double memory_all_gather(int k, bool in_place) {
  return in_place ? static_cast<double>(k) * k : static_cast<double>(k) * (k + 1);
}
double memory_reduce_scatter(int k, bool) { return static_cast<double>(k) * (k + 1); }
double memory_all_to_all(int k, bool in_place) { return 2.0 * k * (in_place ? k - 1 : k); }
// Nobody needs the last rank's input; the first rank's output is not written.
double memory_exscan(int k, bool) { return 2.0 * (k - 1); }
double memory_message(int, bool) { return 2; }

constexpr bool kDivides = true, kUneven = true, kReduces = true, kRooted = true, kPrefix = true;
constexpr Extent kNone = Extent::kNone, kBlock = Extent::kBlock, kAll = Extent::kAllBlocks;

// clang-format off
constexpr std::array kCases{
    Case{"all_reduce", "", "every rank gets the reduction of all buffers",
         kBlock, kBlock, !kDivides, !kUneven, kReduces, !kRooted, Places::kBoth, 1,
         bus_twice_others, run_plain<Collective::kAllReduce>, in_own, expect_reduced,
         memory_read_and_written},
    Case{"reduce", "", "the root gets the reduction of all buffers",
         kBlock, kBlock, !kDivides, !kUneven, kReduces, kRooted, Places::kBoth, 1,
         bus_whole, run_plain<Collective::kReduce>, in_own, expect_reduced_at_root,
         memory_to_root},
    Case{"broadcast", "bcast", "the root's buffer goes to all",
         kNone, kBlock, !kDivides, !kUneven, !kReduces, kRooted, Places::kInPlace, 1,
         bus_whole, run_broadcast, in_at_root, expect_of_root,
         memory_from_root},
    Case{"all_gather", "", "every rank gets the blocks of all",
         kBlock, kAll, kDivides, !kUneven, !kReduces, !kRooted, Places::kBoth, 1,
         bus_others, run_plain<Collective::kAllGather>, in_own_block, expect_gathered,
         memory_all_gather},
    Case{"all_gather_v", "", "all_gather with blocks of different sizes",
         kBlock, kAll, kDivides, kUneven, !kReduces, !kRooted, Places::kBoth, 1,
         bus_others, run_uneven<Collective::kAllGatherV>, in_own_block, expect_gathered,
         memory_all_gather},
    Case{"reduce_scatter", "", "every rank gets its block of the reduction",
         kAll, kBlock, kDivides, !kUneven, kReduces, !kRooted, Places::kBoth, 1,
         bus_others, run_plain<Collective::kReduceScatter>, in_all, expect_reduced_block,
         memory_reduce_scatter},
    Case{"reduce_scatter_v", "", "reduce_scatter with blocks of different sizes",
         kAll, kBlock, kDivides, kUneven, kReduces, !kRooted, Places::kBoth, 1,
         bus_others, run_uneven<Collective::kReduceScatterV>, in_all, expect_reduced_block,
         memory_reduce_scatter},
    Case{"gather", "", "the root gets the blocks of all",
         kBlock, kAll, kDivides, !kUneven, !kReduces, kRooted, Places::kBoth, 1,
         bus_others, run_plain<Collective::kGather>, in_own_block, expect_gathered_at_root,
         memory_through_root},
    Case{"gather_v", "", "gather with blocks of different sizes",
         kBlock, kAll, kDivides, kUneven, !kReduces, kRooted, Places::kBoth, 1,
         bus_others, run_uneven<Collective::kGatherV>, in_own_block, expect_gathered_at_root,
         memory_through_root},
    Case{"scatter", "", "every rank gets its block of the root's buffer",
         kAll, kBlock, kDivides, !kUneven, !kReduces, kRooted, Places::kBoth, 1,
         bus_others, run_plain<Collective::kScatter>, in_all_at_root, expect_block_of_root,
         memory_through_root},
    Case{"scatter_v", "", "scatter with blocks of different sizes",
         kAll, kBlock, kDivides, kUneven, !kReduces, kRooted, Places::kBoth, 1,
         bus_others, run_uneven<Collective::kScatterV>, in_all_at_root, expect_block_of_root,
         memory_through_root},
    Case{"all_to_all", "", "every rank sends a block to every rank",
         kAll, kAll, kDivides, !kUneven, !kReduces, !kRooted, Places::kBoth, 1,
         bus_others, run_plain<Collective::kAllToAll>, in_all, expect_exchanged,
         memory_all_to_all},
    Case{"all_to_all_v", "", "all_to_all with blocks of different sizes",
         kAll, kAll, kDivides, kUneven, !kReduces, !kRooted, Places::kApart, 1,
         bus_others, run_uneven<Collective::kAllToAllV>, in_all, expect_exchanged,
         memory_all_to_all},
    Case{"barrier", "", "waits for all ranks",
         kNone, kNone, !kDivides, !kUneven, !kReduces, !kRooted, Places::kApart, 1,
         bus_whole, run_barrier, in_nothing, expect_nothing,
         memory_nothing},
    Case{"scan", "", "rank r gets the reduction over ranks 0..r",
         kBlock, kBlock, !kDivides, !kUneven, kReduces, !kRooted, Places::kBoth, 1,
         bus_whole, run_plain<Collective::kScan>, in_own, expect_prefix,
         memory_read_and_written, kPrefix},
    Case{"exscan", "", "rank r gets the reduction over ranks 0..r-1",
         kBlock, kBlock, !kDivides, !kUneven, kReduces, !kRooted, Places::kBoth, 1,
         bus_whole, run_plain<Collective::kExscan>, in_own, expect_prefix_before,
         memory_exscan, kPrefix},
    Case{"send_receive", "exchange", "a ring: to the next rank, from the previous one, at once",
         kBlock, kBlock, !kDivides, !kUneven, !kReduces, !kRooted, Places::kApart, 1,
         bus_whole, run_send_receive, in_own, expect_of_previous,
         memory_read_and_written},
    Case{"p2p", "pingpong", "ping-pong between ranks 0 and 1; the time is one way",
         kBlock, kBlock, !kDivides, !kUneven, !kReduces, !kRooted, Places::kApart, 2,
         bus_whole, run_ping_pong, in_of_pair, expect_of_partner,
         memory_message},
};
// clang-format on

std::string squeeze(std::string_view text) {
  std::string kept;
  std::copy_if(text.begin(), text.end(), std::back_inserter(kept),
               [](char c) { return c != '_' && c != '-'; });
  return kept == "sendrecv" ? "sendreceive" : kept;
}

/// True on the ranks whose buffers are the same place in an in-place call.
bool shares_place(const Problem& problem) {
  return problem.in_place && (!problem.measured->rooted || is_root(problem));
}

}  // namespace

std::span<const Case> all_cases() { return kCases; }

bool applies(const Case& measured, OpKind op, DataType type) {
  const bool is_defined = op != OpKind::kAverage || !measured.prefix;
  return measured.reduces && is_defined && is_meaningful(op, type);
}

const Case* find_case(std::string_view name) {
  const std::string wanted = squeeze(name);
  for (const Case& candidate : kCases) {
    if (squeeze(candidate.name) == wanted) return &candidate;
    if (!candidate.alias.empty() && candidate.alias == wanted) return &candidate;
  }
  return nullptr;
}

std::size_t elements_of(Extent extent, const Problem& problem) {
  switch (extent) {
    case Extent::kNone:
      return 0;
    case Extent::kBlock:
      return problem.count + shift_of(problem);
    case Extent::kAllBlocks:
      return in_all(problem);
  }
  return 0;
}

void fill_counts(Problem& p) {
  const bool pairs = p.measured->in == Extent::kAllBlocks && p.measured->out == Extent::kAllBlocks;
  p.in_counts.clear();
  p.out_counts.clear();
  for (Rank r = 0; r < p.ranks; ++r) {
    p.in_counts.push_back(pairs ? pair_of(p, p.rank, r) : block_of(p, r));
    p.out_counts.push_back(pairs ? pair_of(p, r, p.rank) : block_of(p, r));
  }
  const auto starts = [](const std::vector<std::size_t>& counts) {
    std::vector<std::size_t> at(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), at.begin(), std::size_t{0});
    return at;
  };
  p.in_displacements = starts(p.in_counts);
  p.out_displacements = starts(p.out_counts);
}

Placement place(const Problem& p, std::byte* in_memory, std::byte* out_memory) {
  const Case& measured = *p.measured;
  if (measured.places == Places::kInPlace) return {out_memory, out_memory};
  if (!shares_place(p)) return {in_memory, out_memory};
  const std::size_t own_start = start_of(p, p.rank) * size_of(p.type);
  if (measured.in == measured.out) return {out_memory, out_memory};
  if (measured.in == Extent::kBlock) return {out_memory + own_start, out_memory};
  return {in_memory, in_memory + own_start};
}

}  // namespace unisono::perf
