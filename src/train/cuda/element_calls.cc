// Calls that are one kernel, element by element.
#include "train/cuda/gpu_backend.h"

namespace unisono::train {

void GpuBackend::add(const float* values, std::size_t count, float* sum) {
  launch(kernels::Add{count, values, sum});
}

void GpuBackend::add_products(const float* left, const float* right, std::size_t count,
                              float* sum) {
  launch(kernels::AddProducts{count, left, right, sum});
}

void GpuBackend::scale(const float* from, std::size_t count, float factor, float* to) {
  launch(kernels::Scale{count, from, factor, to});
}

void GpuBackend::mix(float keep, float rest, const float* values, std::size_t count, float* to) {
  launch(kernels::Mix{count, keep, rest, values, to});
}

void GpuBackend::narrow(const float* from, std::size_t count, float factor, DataType type,
                        void* to) {
  if (type == DataType::kFloat16) {
    launch(kernels::Narrow<Float16>{count, from, factor, static_cast<Float16*>(to)});
  } else {
    launch(kernels::Narrow<Bfloat16>{count, from, factor, static_cast<Bfloat16*>(to)});
  }
}

void GpuBackend::widen(const void* from, DataType type, std::size_t count, float* to) {
  if (type == DataType::kFloat16) {
    launch(kernels::Widen<Float16>{count, static_cast<const Float16*>(from), to});
  } else {
    launch(kernels::Widen<Bfloat16>{count, static_cast<const Bfloat16*>(from), to});
  }
}

void GpuBackend::relu(const float* x, std::size_t count, float* y) {
  launch(kernels::Relu{count, x, y});
}

void GpuBackend::relu_gradient(const float* x, const float* dy, std::size_t count, float* dx) {
  launch(kernels::ReluGradient{count, x, dy, dx});
}

void GpuBackend::gelu(const float* x, std::size_t count, float* y) {
  launch(kernels::Gelu{count, x, y});
}

void GpuBackend::gelu_gradient(const float* x, const float* dy, std::size_t count, float* dx) {
  launch(kernels::GeluGradient{count, x, dy, dx});
}

void GpuBackend::dropout(const float* values, std::size_t count, const DropoutMask& mask,
                         float* to) {
  launch(kernels::Dropout{count, values, mask, to});
}

void GpuBackend::sgd(const SgdStep& step, const float* gradients, std::size_t count,
                     float* velocity, float* parameters) {
  if (velocity == nullptr) {
    launch(kernels::SgdPlain{count, step, gradients, parameters});
  } else {
    launch(kernels::SgdMomentum{count, step, gradients, velocity, parameters});
  }
}

void GpuBackend::adamw(const AdamWStep& step, const float* gradients, std::size_t count,
                       float* first, float* second, float* parameters) {
  launch(kernels::AdamW{count, step, gradients, first, second, parameters});
}

}  // namespace unisono::train
