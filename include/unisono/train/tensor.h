// A dense float32 tensor in row-major order: activations, batches, outputs.
//
// Threads: like std::vector. The data are 64-byte aligned, so that one binary computes the same
// bits from the same values wherever the tensor was allocated.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace unisono::train {

/// Extents, outermost first. The product of no extents is 1 (a scalar).
using Shape = std::vector<std::size_t>;
std::size_t element_count(const Shape& shape);
/// "[32, 784]".
std::string to_string(const Shape& shape);

/// Bytes of the live tensors (and of buckets of gradients) charged to one account, and the most
/// there were: see DeviceMemory.
struct MemoryUse {
  std::size_t now = 0, peak = 0;
};

/// Which account the calling thread's tensors are charged to: a device is a thread or a rank here,
/// and what each of them holds is what data parallelism is about. Tensors are credited back to the
/// account that they were charged to, whichever thread frees them.
class DeviceMemory {
 public:
  struct Account;  ///< opaque; tensors share it, so they may outlive the DeviceMemory

  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  MemoryUse use() const;
  void reset_peak();
  /// Allocations beyond this throw OutOfDeviceMemory; 0 is no limit.
  void set_limit(std::size_t bytes);

  /// While it lives, the calling thread's new tensors are charged to `memory`, which outlives it.
  /// Scopes nest; without one tensors are charged to nobody.
  class Scope {
   public:
    explicit Scope(DeviceMemory& memory);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::shared_ptr<Account>* previous_;
  };

 private:
  std::shared_ptr<Account> account_;
};

/// An allocation beyond DeviceMemory::set_limit(); the tensor was not made, nothing else changed.
class OutOfDeviceMemory : public std::runtime_error {
 public:
  OutOfDeviceMemory(std::size_t bytes, std::size_t in_use, std::size_t limit);
  std::size_t bytes() const { return bytes_; }
  std::size_t in_use() const { return in_use_; }
  std::size_t limit() const { return limit_; }

 private:
  std::size_t bytes_, in_use_, limit_;
};

class Tensor {
 public:
  Tensor() = default;               ///< no elements, shape [0]
  explicit Tensor(Shape shape);     ///< zeros
  Tensor(const Tensor& other);      ///< copies the data
  Tensor(Tensor&& other) noexcept;  ///< other becomes empty
  Tensor& operator=(Tensor other) noexcept;

  /// Values are whatever the memory held: for results that are written in full.
  static Tensor uninitialised(Shape shape);

  const Shape& shape() const { return shape_; }
  std::size_t dim(std::size_t axis) const { return shape_.at(axis); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  /// Elements per index of the outermost dimension (a row of a batch).
  std::size_t row_size() const { return shape_.empty() || shape_[0] == 0 ? 0 : size_ / shape_[0]; }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::span<float> values() { return {data_.get(), size_}; }
  std::span<const float> values() const { return {data_.get(), size_}; }

  /// Same elements, another shape. Throws std::invalid_argument when the counts differ.
  Tensor reshaped(Shape shape) &&;

 private:
  void swap(Tensor& other) noexcept;

  struct Free {
    std::shared_ptr<DeviceMemory::Account> account;  // who is credited; null: nobody
    std::size_t bytes;
    Free() noexcept : bytes(0) {}
    void operator()(float* data) const;
  };
  Shape shape_{0};
  std::size_t size_ = 0;
  std::unique_ptr<float[], Free> data_;
};

}  // namespace unisono::train
