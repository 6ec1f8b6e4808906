// Which kernel computes what, by name. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cuda/kernels/kernels.h"

namespace unisono::cuda {

/// The kernel that moves bytes and computes nothing.
inline constexpr char kMoveKernel[] = "unisono_move";
/// The same by units: one input to any number of outputs.
inline constexpr char kCopyKernel[] = "unisono_copy";

/// The kernel of a kind that Kernels::supports().
std::string kernel_name(const WorkKind& kind);
/// The one by units over so many inputs, 1 of moves; kernel_images() need not have it.
std::string unit_kernel_name(const WorkKind& kind, int inputs);

/// The names and the code of one family of kernels, as compiled and embedded in the library.
struct KernelImage {
  const unsigned char* begin;
  const unsigned char* end;
  std::vector<std::string> names;
};
std::vector<KernelImage> kernel_images();

}  // namespace unisono::cuda
