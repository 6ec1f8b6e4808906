// The table of what is measured and the few functions its rows share.
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
  return problem.measured->facts.is_uneven ? problem.count / 2 : 0;
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
std::size_t all_blocks(const Problem& p) { return p.count * static_cast<std::size_t>(p.ranks); }

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

void run_collective(Communicator& communicator, const Problem& p, const void* in, void* out) {
  communicator.run({.collective = p.measured->facts.collective,
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

/// A row of collectives.
constexpr Case row(Collective collective, std::string_view meaning, double (*bus_factor)(int),
                   Results (*expect)(const Problem&), double (*memory_blocks)(int, bool),
                   std::string_view alias = "") {
  return {facts_of(collective), alias, meaning, bus_factor, expect, memory_blocks, run_collective};
}

/// Of messages that every rank sends and receives.
constexpr CollectiveFacts facts_of_messages(std::string_view name) {
  return {.collective = Collective::kSend,
          .name = name,
          .flow = Flow::kBetweenTwo,
          .input = {Holds::kVector},
          .output = {Holds::kVector},
          .in_place = InPlace::kNever};
}
constexpr CollectiveFacts kSendReceive = facts_of_messages("send_receive");
constexpr CollectiveFacts kPingPong = facts_of_messages("p2p");

using C = Collective;
// clang-format off
constexpr std::array kCases{
    row(C::kAllReduce, "every rank gets the reduction of all buffers",
        bus_twice_others, expect_reduced, memory_read_and_written),
    row(C::kReduce, "the root gets the reduction of all buffers",
        bus_whole, expect_reduced_at_root, memory_to_root),
    row(C::kBroadcast, "the root's buffer goes to all",
        bus_whole, expect_of_root, memory_from_root, "bcast"),
    row(C::kAllGather, "every rank gets the blocks of all",
        bus_others, expect_gathered, memory_all_gather),
    row(C::kAllGatherV, "all_gather with blocks of different sizes",
        bus_others, expect_gathered, memory_all_gather),
    row(C::kReduceScatter, "every rank gets its block of the reduction",
        bus_others, expect_reduced_block, memory_reduce_scatter),
    row(C::kReduceScatterV, "reduce_scatter with blocks of different sizes",
        bus_others, expect_reduced_block, memory_reduce_scatter),
    row(C::kGather, "the root gets the blocks of all",
        bus_others, expect_gathered_at_root, memory_through_root),
    row(C::kGatherV, "gather with blocks of different sizes",
        bus_others, expect_gathered_at_root, memory_through_root),
    row(C::kScatter, "every rank gets its block of the root's buffer",
        bus_others, expect_block_of_root, memory_through_root),
    row(C::kScatterV, "scatter with blocks of different sizes",
        bus_others, expect_block_of_root, memory_through_root),
    row(C::kAllToAll, "every rank sends a block to every rank",
        bus_others, expect_exchanged, memory_all_to_all),
    row(C::kAllToAllV, "all_to_all with blocks of different sizes",
        bus_others, expect_exchanged, memory_all_to_all),
    row(C::kBarrier, "waits for all ranks",
        bus_whole, expect_nothing, memory_nothing),
    row(C::kScan, "rank r gets the reduction over ranks 0..r",
        bus_whole, expect_prefix, memory_read_and_written),
    row(C::kExscan, "rank r gets the reduction over ranks 0..r-1",
        bus_whole, expect_prefix_before, memory_exscan),
    Case{kSendReceive, "exchange", "a ring: to the next rank, from the previous one, at once",
         bus_whole, expect_of_previous, memory_read_and_written, run_send_receive},
    Case{kPingPong, "pingpong", "ping-pong between ranks 0 and 1; the time is one way",
         bus_whole, expect_of_partner, memory_message, run_ping_pong, 2},
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
  return problem.in_place && (!problem.measured->facts.has_root() || is_root(problem));
}

}  // namespace

std::span<const Case> all_cases() { return kCases; }

bool applies(const Case& measured, OpKind op, DataType type) {
  const bool is_defined = op != OpKind::kAverage || !measured.facts.is_prefix();
  return measured.facts.reduces && is_defined && is_meaningful(op, type);
}

const Case* find_case(std::string_view name) {
  const std::string wanted = squeeze(name);
  for (const Case& candidate : kCases) {
    if (squeeze(candidate.facts.name) == wanted) return &candidate;
    if (!candidate.alias.empty() && candidate.alias == wanted) return &candidate;
  }
  return nullptr;
}

bool has_in_place_form(const Case& measured) {
  return measured.facts.has_buffers() && measured.facts.in_place != InPlace::kNever;
}

std::size_t in_elements(const Problem& p) {
  const BufferFacts& input = p.measured->facts.input;
  if (!input.is_at(p.rank, p.root)) return 0;
  if (input.holds == Holds::kNothing) return 0;
  return input.holds == Holds::kBlocks ? all_blocks(p) : block_of(p, p.rank);
}

Room room_of(const Problem& p) {
  const auto elements = [&](const BufferFacts& buffer) -> std::size_t {
    if (buffer.holds == Holds::kNothing) return 0;
    return buffer.holds == Holds::kBlocks ? all_blocks(p) : p.count + shift_of(p);
  };
  const CollectiveFacts& facts = p.measured->facts;
  const bool is_one_buffer = facts.in_place == InPlace::kAlways;
  return {is_one_buffer ? 0 : elements(facts.input), elements(facts.output)};
}

void fill_counts(Problem& p) {
  const bool pairs = p.measured->facts.exchanges_blocks();
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
  const CollectiveFacts& facts = p.measured->facts;
  if (facts.in_place == InPlace::kAlways) return {out_memory, out_memory};
  if (!shares_place(p)) return {in_memory, out_memory};
  const std::size_t own_start = start_of(p, p.rank) * size_of(p.type);
  if (facts.input.holds == facts.output.holds) return {out_memory, out_memory};
  if (facts.input.holds == Holds::kBlock) return {out_memory + own_start, out_memory};
  return {in_memory, in_memory + own_start};
}

}  // namespace unisono::perf
