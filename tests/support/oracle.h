// What a collective must produce, worked out from first principles: inputs are small whole numbers
// (bit patterns for bitwise operators) chosen so that every result is exact in every type, so that
// each element can be compared bit by bit whatever the order of the reduction.
// Shares no code with the library apart from the narrow float conversions. Thread rule: pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/types.h"

namespace unisono::test {

/// What is reduced: the element type, the operator and how many ranks the communicator has.
struct Reducing {
  DataType type = DataType::kInt32;
  OpKind op = OpKind::kSum;
  int ranks = 1;
};

/// This rank's operator: its scalar for premultiplied sums, a named function for user operators
/// (commutative: exclusive or of the bytes).
ReduceOp op_of(const Reducing& reducing, Rank rank);

/// Element `index` of `rank`'s input.
void write_input(const Reducing& reducing, Rank rank, std::size_t index, void* element);
/// Elements [first, first + count) of `rank`'s input.
std::vector<std::byte> input_of(const Reducing& reducing, Rank rank, std::size_t first,
                                std::size_t count);
/// Element `index` reduced over ranks [0, last).
void write_reduced(const Reducing& reducing, int last, std::size_t index, void* element);
std::vector<std::byte> reduced_of(const Reducing& reducing, int last, std::size_t first,
                                  std::size_t count);

/// Element as hexadecimal digits, for messages.
std::string hex(const void* element, std::size_t bytes);

}  // namespace unisono::test
