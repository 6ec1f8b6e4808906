#include "bindings/python/src/sizes.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "bindings/python/src/errors.h"

namespace unisono::python {
namespace {

enum class Holds { kNothing, kVector, kBlock, kBlocks };
enum class Whose { kAll, kRoots };

struct Side {
  Holds holds = Holds::kNothing;
  Whose whose = Whose::kAll;

  bool is_at(const Call& call, Rank rank) const {
    return whose == Whose::kAll || rank == call.root;
  }
};

struct Shape {
  Side in, out;
  bool is_uneven = false;

  bool exchanges() const { return in.holds == Holds::kBlocks && out.holds == Holds::kBlocks; }
  bool blocks_come_in() const { return in.holds == Holds::kBlocks; }
  bool is_rooted() const { return in.whose == Whose::kRoots || out.whose == Whose::kRoots; }
};

Shape shape_of(Collective collective) {
  constexpr Side kNone{}, kVector{Holds::kVector}, kBlock{Holds::kBlock}, kBlocks{Holds::kBlocks};
  constexpr Side kRootVector{Holds::kVector, Whose::kRoots};
  constexpr Side kRootBlocks{Holds::kBlocks, Whose::kRoots};
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kScan:
    case Collective::kExscan:
      return {kVector, kVector};
    case Collective::kReduce:
      return {kVector, kRootVector};
    case Collective::kBroadcast:
      return {kRootVector, kVector};
    case Collective::kAllGather:
      return {kBlock, kBlocks};
    case Collective::kAllGatherV:
      return {kBlock, kBlocks, true};
    case Collective::kReduceScatter:
      return {kBlocks, kBlock};
    case Collective::kReduceScatterV:
      return {kBlocks, kBlock, true};
    case Collective::kGather:
      return {kBlock, kRootBlocks};
    case Collective::kGatherV:
      return {kBlock, kRootBlocks, true};
    case Collective::kScatter:
      return {kRootBlocks, kBlock};
    case Collective::kScatterV:
      return {kRootBlocks, kBlock, true};
    case Collective::kAllToAll:
      return {kBlocks, kBlocks};
    case Collective::kAllToAllV:
      return {kBlocks, kBlocks, true};
    case Collective::kBarrier:
      return {};
    case Collective::kSend:
      return {kVector, kNone};
    case Collective::kReceive:
      return {kNone, kVector};
  }
  return {};
}

const char* operation_of(const Call& call) { return name_of(call.collective).data(); }

using Counts = std::span<const std::size_t>;

struct Blocks {
  Counts counts, displacements;

  std::size_t begin(std::size_t block) const {
    if (!displacements.empty()) return displacements[block];
    std::size_t first = 0;
    for (std::size_t i = 0; i < block; ++i) first += counts[i];
    return first;
  }
  std::size_t end_of_last() const {
    std::size_t end = 0;
    for (std::size_t i = 0, next = 0; i < counts.size(); ++i) {
      const std::size_t first = displacements.empty() ? next : displacements[i];
      next = first + counts[i];
      if (counts[i] > 0) end = std::max(end, next);
    }
    return end;
  }
};

Blocks in_blocks(const Call& call) { return {call.in_counts, call.in_displacements}; }
Blocks out_blocks(const Call& call) { return {call.out_counts, call.out_displacements}; }

void check_lists(const Call& call, const Blocks& blocks, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  if (blocks.counts.size() != size) {
    refuse(operation_of(call), "there are " + std::to_string(blocks.counts.size()) +
                                   " counts; give one for each of the " + std::to_string(ranks) +
                                   " ranks");
  }
  if (!blocks.displacements.empty() && blocks.displacements.size() != size) {
    refuse(operation_of(call), "there are " + std::to_string(blocks.displacements.size()) +
                                   " displacements; give " + std::to_string(ranks) + " or none");
  }
}

std::size_t share(const Call& call, const char* what, std::size_t length, int ranks) {
  const auto size = static_cast<std::size_t>(std::max(ranks, 1));
  if (length % size != 0) {
    refuse(operation_of(call), std::string(what) + " has " + std::to_string(length) +
                                   " elements, which make no blocks of one length for " +
                                   std::to_string(ranks) + " ranks");
  }
  return length / size;
}

std::size_t needed(const Call& call, const Shape& shape, const Side& side, const Blocks& blocks,
                   Rank rank, int ranks) {
  if (!side.is_at(call, rank) && call.collective != Collective::kBroadcast) return 0;
  switch (side.holds) {
    case Holds::kNothing:
      return 0;
    case Holds::kVector:
    case Holds::kBlock:
      return call.count;
    case Holds::kBlocks:
      break;
  }
  if (!shape.is_uneven) return call.count * static_cast<std::size_t>(ranks);
  check_lists(call, blocks, ranks);
  return blocks.end_of_last();
}

void check_length(const Call& call, const char* what, std::size_t have, std::size_t need) {
  if (have >= need) return;
  refuse(operation_of(call), std::string(what) + " has " + std::to_string(have) + " elements and " +
                                 std::to_string(need) + " are needed");
}

void check_lengths(const Call& call, const Shape& shape, const Lengths& lengths, Rank rank,
                   int ranks) {
  check_length(call, "in_", lengths.in,
               needed(call, shape, shape.in, in_blocks(call), rank, ranks));
  check_length(call, "out", lengths.out,
               needed(call, shape, shape.out, out_blocks(call), rank, ranks));
}

// Of a call of uneven blocks, on a rank that has the counts.
std::size_t own_count(const Call& call, const Shape& shape, Rank rank, int ranks) {
  const Blocks blocks = shape.blocks_come_in() ? in_blocks(call) : out_blocks(call);
  check_lists(call, blocks, ranks);
  return blocks.counts[static_cast<std::size_t>(rank)];
}

}  // namespace

bool reduces(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kScan:
    case Collective::kExscan:
      return true;
    default:
      return false;
  }
}

bool has_root(Collective collective) { return shape_of(collective).is_rooted(); }

bool needs_input(const Call& call, Rank rank) {
  const Shape shape = shape_of(call.collective);
  return shape.in.holds != Holds::kNothing && shape.in.is_at(call, rank) && !shape.is_uneven;
}

void fit_two_buffers(Call* call, const Lengths& lengths, Rank rank, int ranks) {
  const Shape shape = shape_of(call->collective);
  const bool knows_counts =
      shape.is_uneven && !shape.exchanges() && (!shape.is_rooted() || rank == call->root);
  if (knows_counts) {
    call->count = own_count(*call, shape, rank, ranks);
  } else if (!shape.exchanges()) {
    const bool by_output = shape.blocks_come_in() || shape.in.holds == Holds::kNothing;
    call->count = by_output ? lengths.out : lengths.in;
  } else if (!shape.is_uneven) {
    call->count = share(*call, "in_", lengths.in, ranks);
  }
  check_lengths(*call, shape, lengths, rank, ranks);
}

void fit_in_place(Call* call, std::size_t length, Rank rank, int ranks) {
  const Shape shape = shape_of(call->collective);
  auto* const data = static_cast<std::byte*>(call->out);
  call->in = data;
  call->count = length;
  const Side& side = shape.blocks_come_in() ? shape.in : shape.out;
  if (side.holds != Holds::kBlocks) return;
  if (!side.is_at(*call, rank)) {  // only what this rank gives or gets
    if (shape.blocks_come_in()) call->in = nullptr;
    if (!shape.blocks_come_in()) call->out = nullptr;
    return;
  }
  std::size_t first = 0;
  if (shape.is_uneven && !shape.exchanges()) {
    call->count = own_count(*call, shape, rank, ranks);
    const Blocks blocks = shape.blocks_come_in() ? in_blocks(*call) : out_blocks(*call);
    first = blocks.begin(static_cast<std::size_t>(rank));
  } else if (!shape.is_uneven) {
    call->count = share(*call, "the array", length, ranks);
    first = call->count * static_cast<std::size_t>(rank);
  }
  check_lengths(*call, shape, {length, length}, rank, ranks);
  if (shape.exchanges()) return;
  std::byte* const own = data + first * size_of(call->type);
  if (shape.blocks_come_in()) {
    call->out = own;
  } else {
    call->in = own;
  }
}

}  // namespace unisono::python
