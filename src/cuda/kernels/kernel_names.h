// Which kernel computes what, by name. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cuda/kernels/kernels.h"

namespace unisono::cuda {

/// The kernel that moves bytes and computes nothing.
inline constexpr char kMoveKernel[] = "unisono_move";

/// The kernel of a kind that Kernels::supports().
std::string kernel_name(const WorkKind& kind);

/// The names and the code of one family of kernels, as compiled and embedded in the library.
struct KernelImage {
  const unsigned char* begin;
  const unsigned char* end;
  std::vector<std::string> names;
};
std::vector<KernelImage> kernel_images();

}  // namespace unisono::cuda
