// What can be measured: one row per collective, with what must come out and its bandwidth factor;
// where its data lie says base/collective.h. A new collective is a new row in cases.cc.
// Immutable values, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/collective.h"
#include "unisono/communicator.h"
#include "unisono/types.h"

namespace unisono::perf {

struct Case;

/// One size of one collective on one rank.
struct Problem {
  const Case* measured = nullptr;
  Rank rank = 0;
  int ranks = 1;
  std::size_t count = 0;  ///< elements of a block, or of the whole buffer where it is not divided
  DataType type = DataType::kFloat32;
  ReduceOp op{};
  Rank root = 0;
  bool in_place = false;
  CallOptions options{};
  /// For the v-collectives; see fill_counts().
  std::vector<std::size_t> in_counts, in_displacements, out_counts, out_displacements;
};

/// Part of a rank's output: `count` elements from `offset` must be those of a pattern from
/// `first_index`: the operator over ranks first .. last - 1, or the input of `first`.
struct Expected {
  std::size_t offset = 0, count = 0;
  Rank first = 0, last = 1;
  std::size_t first_index = 0;
};

struct Case {
  const CollectiveFacts& facts;
  std::string_view alias;    ///< another spelling, or empty
  std::string_view meaning;  ///< for --help
  double (*bus_factor)(int ranks);
  std::vector<Expected> (*expect)(const Problem& problem);
  /// Where all ranks' memory is one device's: what must be read plus what must be written, of all
  /// ranks, in blocks of `count` elements.
  double (*memory_blocks)(int ranks, bool in_place);
  void (*run)(Communicator& communicator, const Problem& problem, const void* in, void* out);
  double time_divisor = 1;  ///< 2 where a round trip is run and one way is reported
};

/// True where the collective reduces and the operator has a meaning for it on this type.
bool applies(const Case& measured, OpKind op, DataType type);

std::span<const Case> all_cases();
/// By name or alias; dashes and underscores do not matter. Null when unknown.
const Case* find_case(std::string_view name);

/// Without one it is always out of place; a broadcast is always in place.
bool has_in_place_form(const Case& measured);
/// Elements that this rank must provide.
std::size_t in_elements(const Problem& problem);
/// Elements that the buffers must hold, the same on all ranks.
struct Room {
  std::size_t in = 0, out = 0;
};
Room room_of(const Problem& problem);
/// Sizes and starts of the blocks, from count.
void fill_counts(Problem& problem);

/// Where a call's buffers are. In place, either lies inside the other one's memory.
struct Placement {
  std::byte* in = nullptr;
  std::byte* out = nullptr;
};
Placement place(const Problem& problem, std::byte* in_memory, std::byte* out_memory);

}  // namespace unisono::perf
