#include "plan/symbolic_value.h"

namespace unisono::plan {

Value SymbolTable::find_or_add(std::unordered_map<std::uint64_t, Value>& index, std::uint64_t key,
                               Node node) {
  const auto [at, added] = index.try_emplace(key, static_cast<Value>(nodes_.size()));
  if (added) nodes_.push_back(node);
  return at->second;
}

Value SymbolTable::leaf(Rank rank, std::uint32_t chunk) {
  const std::uint64_t key = std::uint64_t{static_cast<std::uint32_t>(rank)} << 32 | chunk;
  return find_or_add(leaves_, key, {.rank = rank, .chunk = chunk, .operand_count = 1});
}

Value SymbolTable::combine(Value left, Value right) { return add_pair(sums_, left, right); }

Value SymbolTable::combine_all(std::span<const Value> operands) {
  Value list = operands.front();
  for (const Value operand : operands.subspan(1)) list = add_pair(lists_, list, operand);
  if (list == kUndefined) return kUndefined;
  return find_or_add(
      totals_, list,
      {.left = list, .chunk = nodes_[list].chunk, .operand_count = nodes_[list].operand_count});
}

Value SymbolTable::reduced_at_once(Rank first, int count, std::uint32_t chunk) {
  std::vector<Value> operands;
  for (Rank rank = first; rank < first + count; ++rank) operands.push_back(leaf(rank, chunk));
  return combine_all(operands);
}

Value SymbolTable::add_pair(std::unordered_map<std::uint64_t, Value>& index, Value left,
                            Value right) {
  if (left == kUndefined || right == kUndefined) return kUndefined;
  if (nodes_[left].chunk != nodes_[right].chunk) return kUndefined;
  const std::uint32_t operand_count = nodes_[left].operand_count + nodes_[right].operand_count;
  if (operand_count > kOperandsMax) return kUndefined;
  const std::uint64_t key = std::uint64_t{left} << 32 | right;
  return find_or_add(
      index, key,
      {.left = left, .right = right, .chunk = nodes_[left].chunk, .operand_count = operand_count});
}

Value SymbolTable::canonical_tree(Rank first, int count, std::uint32_t chunk) {
  if (count == 1) return leaf(first, chunk);
  int split = 1;
  while (split * 2 < count) split *= 2;
  const Value left = canonical_tree(first, split, chunk);
  return combine(left, canonical_tree(first + split, count - split, chunk));
}

std::vector<Rank> SymbolTable::operands(Value value) const {
  std::vector<Rank> ranks;
  if (value == kUndefined) return ranks;
  ranks.reserve(nodes_[value].operand_count);
  std::vector<Value> open{value};
  while (!open.empty()) {
    const Node& node = nodes_[open.back()];
    open.pop_back();
    if (node.left == kUndefined) {
      ranks.push_back(node.rank);
    } else {
      if (node.right != kUndefined) open.push_back(node.right);
      open.push_back(node.left);
    }
  }
  return ranks;
}

std::string SymbolTable::text(Value value) const {
  if (value == kUndefined) return "nothing";
  std::string out;
  append_text(value, &out);
  return out + "[" + std::to_string(nodes_[value].chunk) + "]";
}

void SymbolTable::append_text(Value value, std::string* out) const {
  constexpr std::size_t kTextMax = 400;  // of a message that a person reads
  if (out->size() > kTextMax) {
    *out += out->back() == '.' ? "" : "...";
    return;
  }
  const Node& node = nodes_[value];
  if (node.left == kUndefined) {
    *out += std::to_string(node.rank);
    return;
  }
  *out += node.right == kUndefined ? "exact(" : "(";
  append_text(node.left, out);
  if (node.right != kUndefined) {
    *out += '+';
    append_text(node.right, out);
  }
  *out += ')';
}

}  // namespace unisono::plan
