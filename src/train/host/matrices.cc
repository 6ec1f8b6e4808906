// Products and what stands beside them: rows repeated, columns summed.
#include <algorithm>

#include "train/host/gemm.h"
#include "train/host/host_backend.h"

namespace unisono::train {

void HostBackend::multiply(const Product& product) { train::multiply(product); }

void HostBackend::repeat_row(const float* row, std::size_t rows, std::size_t width, float* to) {
  for (std::size_t r = 0; r < rows; ++r) std::copy_n(row, width, to + r * width);
}

void HostBackend::add_column_sums(const float* values, std::size_t rows, std::size_t width,
                                  float* sums) {
  for (std::size_t row = 0; row < rows; ++row) {
    const float* value = values + row * width;
    for (std::size_t c = 0; c < width; ++c) sums[c] += value[c];
  }
}

}  // namespace unisono::train
