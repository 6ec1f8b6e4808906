#include "native/way_costs.h"

#include <algorithm>
#include <cmath>

#include "base/collective.h"
#include "native/transfer.h"
#include "transports/shm/segment.h"

namespace unisono::native {
namespace {

// The first is taken of those that are nearly equal.
constexpr double kNearlyEqual = 1.03;
constexpr double kMib = 1048576.0;
// What CombineCall reads at a time by single copy.
constexpr double kCombinedPiece = 16384;
constexpr double kUnit = shm::kWindowSlotBytes;

/// Bytes that one rank moves.
struct Moves {
  double writes = 0;
  double reads = 0;
  double own = 0;
  double combines = 0;  ///< of what it reads; without a copy of its own where that is in a slot
};

/// ns for a byte of each of them, and for a system call.
struct Rates {
  double write = 0;
  double read = 0;
  double own = 0;
  double scratch = 0;  ///< reading what was copied in order to be combined
  double per_call = 0;
  double piece = kUnit;
};

// Rates between two measured sizes follow the logarithm of the size, as caches are left one after
// another; beyond all sizes they are those of the nearest one.
double rate_of(const HostFacts& facts, Copy copy, double bytes) {
  std::size_t below = 0;
  while (below + 1 < kMeasuredCopySizes && facts.copies[below + 1][copy] != 0 &&
         static_cast<double>(bytes_of_copy(below + 1)) <= bytes) {
    ++below;
  }
  const double low = facts.copies[below][copy];
  const auto at = static_cast<double>(bytes_of_copy(below));
  if (bytes <= at || below + 1 == kMeasuredCopySizes || facts.copies[below + 1][copy] == 0) {
    return low / kMib;
  }
  const auto next = static_cast<double>(bytes_of_copy(below + 1));
  const double part = std::log(bytes / at) / std::log(next / at);
  return (low + (facts.copies[below + 1][copy] - low) * part) / kMib;
}

Moves moves_of(const CollectiveFacts& call, int rank, int ranks, double bytes) {
  const double n = ranks;
  const bool is_root = rank == 0;
  const bool in_parts = call.input.holds == Holds::kBlocks;
  const double block = in_parts ? bytes / n : bytes;
  const double part = bytes / n;  // of those that share the combining
  switch (call.flow) {
    case Flow::kAllToAll:
      if (call.is_one_vector()) return {bytes, 2 * (bytes - part), part, bytes - part};
      return {in_parts ? bytes - block : bytes, (n - 1) * block, block,
              call.reduces ? (n - 1) * block : 0};
    case Flow::kAllToRoot:
      if (call.reduces) {
        return {bytes, (is_root ? 2 : 1) * (bytes - part), is_root ? part : 0, bytes - part};
      }
      return is_root ? Moves{0, (n - 1) * block, block} : Moves{block, 0, 0};
    case Flow::kRootToAll:
      if (!is_root) return {0, block, 0};
      return {in_parts ? bytes - block : bytes, 0, in_parts ? block : 0};
    case Flow::kUpToOwn:
    case Flow::kBelowOwn:
      return {rank + 1 < ranks ? bytes : 0, rank * bytes, 0, rank * bytes};
    case Flow::kNone:
    case Flow::kBetweenTwo:
      break;
  }
  return {};
}

double time_of(const Moves& moves, const Rates& rates) {
  return moves.writes * rates.write + moves.reads * rates.read + moves.own * rates.own +
         moves.combines * rates.scratch + std::ceil(moves.reads / rates.piece) * rates.per_call;
}

// Pieces in which what one rank writes is read by others while it writes the next
// (ExchangeCall::choose_units; a cell is one).
double pieces_of(const CollectiveFacts& call, double bytes) {
  if (bytes <= shm::kCellPayloadBytes) return 1;
  if (call.has_root() && !call.reduces) return std::clamp(bytes / 65536, 4.0, 16.0);
  return std::max(1.0, bytes / kUnit);
}

double time_of_call(const CollectiveFacts& call, int ranks, double bytes, const Rates& rates) {
  double slowest = 0, writers = 0, readers = 0;
  bool has_roles = false;
  for (int rank = 0; rank < ranks; ++rank) {
    const Moves moves = moves_of(call, rank, ranks, bytes);
    const double time = time_of(moves, rates);
    slowest = std::max(slowest, time);
    has_roles = has_roles || moves.writes == 0 || moves.reads == 0;
    writers = std::max(writers, moves.reads == 0 ? time : 0);
    readers = std::max(readers, moves.writes == 0 ? time : 0);
  }
  const double first_piece = has_roles ? std::min(writers, readers) / pieces_of(call, bytes) : 0;
  return slowest + first_piece;
}

// What a call waits for beside what moves: cells; results, where ranks combine in parts; and the
// end of readers in place.
double waits_of(const CollectiveFacts& call, bool in_place) {
  return 1 + (shares_combining(call) ? 1 : 0) + (in_place ? 1 : 0);
}

}  // namespace

WayCosts predict_costs(const HostFacts& facts, int ranks, Collective collective,
                       std::size_t bytes) {
  const CollectiveFacts& call = facts_of(collective);
  if (!facts.are_known() || !call.has_buffers() || call.is_uneven || ranks < 2) return {};
  const auto given = static_cast<double>(bytes);
  const auto rate = [&](Copy copy) { return rate_of(facts, copy, given); };
  const auto time = [&](const Rates& rates, bool in_place) {
    return time_of_call(call, ranks, given, rates) +
           waits_of(call, in_place) * facts.waits[kLineWait];
  };
  const double own = rate(kLocalCopy);
  const double cached = time({rate(kWriteCopy), rate(kReadCopy), own}, false);
  const double streamed = time({rate(kStreamedWriteCopy), rate(kStreamedReadCopy), own}, false);
  double single = 0;
  if (facts.copies[0][kKernelCopy] != 0) {
    // Blocks for others come in pieces that fit a slot together (ExchangeCall::choose_units).
    const bool in_parts = call.input.holds == Holds::kBlocks;
    const double piece = std::min(given, in_parts ? kUnit / (ranks - 1) : kUnit);
    Rates rates{.read = std::max(rate(kKernelCopy), rate_of(facts, kKernelCopy, piece)),
                .own = own};
    rates.scratch = rate_of(facts, kLocalCopy, std::min(given, kUnit)) / 2;
    if (shares_combining(call)) {
      rates.per_call = facts.waits[kKernelWait];
      rates.piece = kCombinedPiece;
    }
    single = time(rates, true);
  }
  WayCosts costs{};
  for (std::size_t way = 0; way < costs.size(); ++way) {
    costs[way] = kTriedPaths[way] == AccessPath::kStreamed     ? streamed
                 : kTriedPaths[way] == AccessPath::kSingleCopy ? single
                                                               : cached;
  }
  return costs;
}

WayCosts predict_class(const HostFacts& facts, CallingRanks here, Collective collective, int size) {
  if (here.ranks > here.cores) return {};
  const std::size_t bytes = largest_of_size(size);
  WayCosts costs = predict_costs(facts, here.ranks, collective, bytes);
  for (std::size_t way = 0; way < costs.size(); ++way) {
    const bool leaves_cell =
        kTriedPaths[way] == AccessPath::kSingleCopy || kTriedPaths[way] == AccessPath::kWindow;
    if (leaves_cell && bytes <= shm::kCellPayloadBytes) costs[way] = 0;
  }
  return costs;
}

std::size_t likely_way(const WayCosts& costs) {
  std::size_t best = 0;
  for (std::size_t way = 1; way < costs.size(); ++way) {
    if (costs[way] > 0 && costs[way] * kNearlyEqual < costs[best]) best = way;
  }
  return best;
}

bool is_far(const WayCosts& costs, std::size_t way) {
  return way != 0 && costs[way] > kFarCost * costs[likely_way(costs)];
}

}  // namespace unisono::native
