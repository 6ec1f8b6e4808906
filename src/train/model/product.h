// A matrix product as a value. Included where code is compiled once per instruction set, so nothing
// of the standard library that has code.
#pragma once

#include <cstddef>

namespace unisono::train {

/// A row-major matrix inside a larger one, whose rows start `stride` elements apart.
struct MatrixView {
  const float* data;
  std::size_t stride;
  bool transposed = false;  ///< `data` holds the transpose of the operand
};

/// result [rows, columns] = left [rows, inner] * right [inner, columns], or += where `accumulate`.
struct Product {
  std::size_t rows, columns, inner;
  MatrixView left, right;
  float* result;
  std::size_t result_stride;
  bool accumulate = false;
};

}  // namespace unisono::train
