// Tensors: storage of a backend, charged to the calling thread's device memory.
#include "unisono/train/tensor.h"

#include <cstdint>
#include <utility>

#include "train/model/device_memory.h"

namespace unisono::train {
std::size_t element_count(const Shape& shape) {
  std::size_t count = 1;
  for (const std::size_t extent : shape) {
    // Bytes are counted in size_t too, with room to round them up.
    if (extent != 0 && count > SIZE_MAX / (2 * sizeof(float)) / extent) {
      throw std::invalid_argument("a tensor of shape " + to_string(shape) +
                                  " has more elements than memory can hold");
    }
    count *= extent;
  }
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return text + "]";
}

void Tensor::Free::operator()(float* data) const {
  backend_of(account).give(data, bytes);
  if (account != nullptr) account->credit(bytes);
}

Tensor Tensor::uninitialised(Shape shape) {
  return uninitialised(std::move(shape), current_account());
}

Tensor Tensor::uninitialised(Shape shape, const std::shared_ptr<DeviceMemory::Account>& account) {
  Tensor tensor;
  const std::size_t size = element_count(shape);
  tensor.shape_ = std::move(shape);
  if (size == 0) return tensor;
  const Free owner{account, size * sizeof(float)};
  if (account != nullptr) account->charge(owner.bytes);
  try {
    tensor.data_ = {static_cast<float*>(backend_of(account).take(owner.bytes)), owner};
  } catch (...) {
    if (account != nullptr) account->credit(owner.bytes);
    throw;
  }
  tensor.size_ = size;
  return tensor;
}

Tensor::Tensor(Shape shape) : Tensor(uninitialised(std::move(shape))) {
  if (size_ != 0) backend_of(*this).fill(data(), size_, 0.0F);
}

Tensor::Tensor(const Tensor& other) : Tensor(uninitialised(other.shape_)) {
  copy_elements(other, this);
}

Tensor Tensor::for_host(Shape shape) {
  const AccountScope scope(hosts_account());
  return Tensor(std::move(shape));
}

bool Tensor::on_host() const { return backend_of(*this).is_host(); }

Tensor Tensor::to_host() const {
  Tensor copy = uninitialised(shape_, nullptr);
  copy_elements(*this, &copy);
  return copy;
}

Tensor::Tensor(Tensor&& other) noexcept : Tensor() { swap(other); }

Tensor& Tensor::operator=(Tensor other) noexcept {
  swap(other);
  return *this;
}

void Tensor::swap(Tensor& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(size_, other.size_);
  std::swap(data_, other.data_);
}

Tensor Tensor::reshaped(Shape shape) && {
  if (element_count(shape) != size_) {
    throw std::invalid_argument("a tensor of shape " + to_string(shape_) +
                                " cannot be seen as one of shape " + to_string(shape));
  }
  shape_ = std::move(shape);
  return std::move(*this);
}

}  // namespace unisono::train
