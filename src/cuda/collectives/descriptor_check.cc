#include "cuda/collectives/descriptor_check.h"

#include <string>

#include "base/collective.h"

namespace unisono::device {
namespace {

// Whether `count` elements from element `first` on lie in so many bytes. Anything may be told.
bool fit(std::uint64_t first, std::uint64_t count, std::uint64_t element_bytes,
         std::uint64_t bytes) {
  std::uint64_t end = 0;
  return !__builtin_add_overflow(first, count, &end) &&
         !__builtin_mul_overflow(end, element_bytes, &end) && end <= bytes;
}

// Callers may give arrays that their call does not use.
Status check_blocks(const Call& call, const ToldDescriptors& told) {
  const CollectiveFacts& facts = facts_of(call.collective);
  const std::uint64_t element = size_of(call.type);
  for (Rank rank = 0; rank < told.size(); ++rank) {
    const Descriptor& theirs = told.of(rank);
    const DescriptorCounts& arrays = told.counts_of(rank);
    const auto has_blocks = [&](const BufferFacts& buffer) {
      return buffer.holds == Holds::kBlocks && buffer.is_at(rank, call.root);
    };
    const bool reads_blocks = has_blocks(facts.input), writes_blocks = has_blocks(facts.output);
    for (Rank i = 0; i < told.size(); ++i) {
      const bool in_bounds = (!reads_blocks || arrays.input_counts[i] == 0 ||
                              fit(arrays.input_displacements[i], arrays.input_counts[i], element,
                                  theirs.input_bytes)) &&
                             (!writes_blocks || arrays.output_counts[i] == 0 ||
                              fit(arrays.output_displacements[i], arrays.output_counts[i], element,
                                  theirs.output_bytes));
      if (in_bounds) continue;
      return Status(ErrorCode::kProtocol,
                    "rank " + std::to_string(rank) + " told of a block outside of its buffer",
                    rank);
    }
  }
  return Status();
}

// What two ranks say of the same block: both ends of an exchange, the root and its peer, or any two
// of those that give all counts.
Status check_counts(const Call& call, const ToldDescriptors& told) {
  const CollectiveFacts& facts = facts_of(call.collective);
  const bool exchanges = facts.exchanges_blocks();
  const auto all_of = [&](Rank rank) {
    return facts.output.holds == Holds::kBlocks ? told.counts_of(rank).output_counts
                                                : told.counts_of(rank).input_counts;
  };
  for (Rank a = 0; a < told.size(); ++a) {
    for (Rank b = 0; b < told.size(); ++b) {
      const Rank first = facts.has_root() ? call.root : exchanges ? a : 0;
      const Rank second = facts.has_root() || exchanges ? b : a;
      const std::uint64_t by_first =
          exchanges ? told.counts_of(a).input_counts[b] : all_of(first)[b];
      const std::uint64_t by_second = exchanges          ? told.counts_of(b).output_counts[a]
                                      : facts.has_root() ? told.of(b).count
                                                         : all_of(second)[b];
      if (by_first == by_second) continue;
      return Status(ErrorCode::kMismatch,
                    "rank " + std::to_string(first) + " called " + std::string(facts.name) +
                        " with " + std::to_string(by_first) +
                        " elements for a block of which rank " + std::to_string(second) + " has " +
                        std::to_string(by_second),
                    second);
    }
  }
  return Status();
}

// Elements that kernels touch in a buffer of the rank's which has no blocks of counts of its own.
std::uint64_t needed_of(const BufferFacts& buffer, Rank rank, const Call& call,
                        const ToldDescriptors& told) {
  const CollectiveFacts& facts = facts_of(call.collective);
  if (buffer.holds == Holds::kNothing || !buffer.is_at(rank, call.root)) return 0;
  if (!facts.is_uneven) {
    return buffer.holds == Holds::kBlocks ? call.count * static_cast<std::size_t>(told.size())
                                          : call.count;
  }
  if (buffer.holds == Holds::kBlocks) return 0;  // check_blocks() has seen them
  const DescriptorCounts& arrays = told.counts_of(facts.has_root() ? call.root : 0);
  return facts.output.holds == Holds::kBlocks ? arrays.output_counts[rank]
                                              : arrays.input_counts[rank];
}

Status check_extents(const Call& call, const ToldDescriptors& told) {
  const CollectiveFacts& facts = facts_of(call.collective);
  for (Rank rank = 0; rank < told.size(); ++rank) {
    for (const bool is_input : {true, false}) {
      const std::uint64_t bytes = is_input ? told.of(rank).input_bytes : told.of(rank).output_bytes;
      const std::uint64_t needed =
          needed_of(is_input ? facts.input : facts.output, rank, call, told);
      if (fit(0, needed, size_of(call.type), bytes)) continue;
      return Status(ErrorCode::kProtocol,
                    "rank " + std::to_string(rank) + " told of " + std::to_string(bytes) +
                        " bytes of " + (is_input ? "input" : "output") + " for " +
                        std::string(facts.name) + ", which takes " + std::to_string(needed) +
                        " elements of " + std::to_string(size_of(call.type)) + " bytes there",
                    rank);
    }
  }
  return Status();
}

}  // namespace

Status check_told(const Call& call, const ToldDescriptors& told) {
  if (facts_of(call.collective).is_uneven) {
    UNISONO_TRY(check_blocks(call, told));
    UNISONO_TRY(check_counts(call, told));
  }
  return check_extents(call, told);
}

}  // namespace unisono::device
