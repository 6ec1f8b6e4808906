// Builds without the CUDA toolkit: says so wherever a GPU is asked for. No state.
#include <stdexcept>
#include <string>

#include "train/cuda/cuda_backend.h"

namespace unisono::train {
namespace {

[[noreturn]] void refuse(int device) {
  throw std::runtime_error("device " + std::to_string(device) +
                           ": built without CUDA; configure with -DUNISONO_WITH_CUDA=ON and the "
                           "CUDA toolkit 12.0 or newer, or train on the host");
}

}  // namespace

std::shared_ptr<Backend> make_cuda_backend(int device) { refuse(device); }
std::shared_ptr<PageLockedMemory> make_page_locked_memory(int device) { refuse(device); }

}  // namespace unisono::train
