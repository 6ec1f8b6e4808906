// The arithmetic and memory of one GPU.
#pragma once

#include <memory>

#include "train/model/backend.h"

namespace unisono::train {

/// `device` counts what CUDA_VISIBLE_DEVICES leaves. Throws std::runtime_error, naming the device,
/// what is missing and the remedy.
std::shared_ptr<Backend> make_cuda_backend(int device);
/// The host's arithmetic on page-locked memory, for copies to `device`.
std::shared_ptr<Backend> make_page_locked_backend(int device);

}  // namespace unisono::train
