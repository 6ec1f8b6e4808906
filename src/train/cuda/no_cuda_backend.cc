// A build without CUDA.
#include <stdexcept>

#include "train/cuda/cuda_backend.h"

namespace unisono::train {
namespace {

[[noreturn]] void refuse(int device) {
  throw std::runtime_error("device " + std::to_string(device) +
                           ": this build has no CUDA; build with UNISONO_WITH_CUDA=ON");
}

}  // namespace

std::shared_ptr<Backend> make_cuda_backend(int device) { refuse(device); }
std::shared_ptr<Backend> make_page_locked_backend(int device) { refuse(device); }

}  // namespace unisono::train
