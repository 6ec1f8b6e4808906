// What a chunk holds while plans are run symbolically: nothing known, one rank's operand, or an
// expression over operands. Expressions are shared, so equal ones have equal numbers. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "unisono/types.h"

namespace unisono::plan {

using Value = std::uint32_t;
inline constexpr Value kUndefined = 0;

class SymbolTable {
 public:
  SymbolTable() : nodes_(1) {}

  /// Chunk `chunk` of the input of `rank`.
  Value leaf(Rank rank, std::uint32_t chunk);
  /// left (op) right; undefined when one of them is, or when they are of different chunks.
  Value combine(Value left, Value right);
  /// All operands reduced at once; undefined where combine() would be.
  Value combine_all(std::span<const Value> operands);
  /// What the exact order wants: the ranks' operands for `chunk`, reduced at once.
  Value reduced_at_once(Rank first, int count, std::uint32_t chunk);
  /// The canonical tree T(first, first + count) over the ranks' operands for `chunk`.
  Value canonical_tree(Rank first, int count, std::uint32_t chunk);

  /// The ranks whose operands are in `value`, from left to right.
  std::vector<Rank> operands(Value value) const;
  /// The chunk that all its operands are of.
  std::uint32_t chunk_of(Value value) const { return nodes_[value].chunk; }
  /// "((0+1)+2)[3]": ranks and the chunk; "nothing" when undefined.
  std::string text(Value value) const;

 private:
  struct Node {
    Value left = kUndefined;   // undefined in a leaf
    Value right = kUndefined;  // undefined in what was reduced at once: all that `left` lists
    Rank rank = -1;
    std::uint32_t chunk = 0;
    std::uint32_t operand_count = 0;
  };
  // More operands than ranks is wrong already; sharing lets a broken plan double them each step.
  static constexpr std::uint32_t kOperandsMax = 1u << 20;

  void append_text(Value value, std::string* out) const;
  Value add_pair(std::unordered_map<std::uint64_t, Value>& index, Value left, Value right);
  Value find_or_add(std::unordered_map<std::uint64_t, Value>& index, std::uint64_t key, Node node);

  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, Value> leaves_;
  std::unordered_map<std::uint64_t, Value> sums_;
  std::unordered_map<std::uint64_t, Value> lists_;   // by the list so far and one operand more
  std::unordered_map<std::uint64_t, Value> totals_;  // by the list
};

}  // namespace unisono::plan
