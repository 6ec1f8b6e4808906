// A dense float32 tensor in row-major order: activations, batches, outputs. Its elements lie in the
// host's memory, or on a GPU where the thread that makes it is in the scope of a GPU's
// DeviceMemory.
//
// Threads: like std::vector; of the tensors of one GPU's DeviceMemory, one thread at a time. The
// data are 64-byte aligned, so that one binary computes the same bits from the same values wherever
// the tensor was allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
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

/// Where the elements of a DeviceMemory's tensors are.
enum class Residence : std::uint8_t {
  kHost,
  kPageLocked,  ///< the host's, for copies to and from a GPU without a stop in between
  kCuda,
};

/// A device: where the calling thread's tensors lie, and the account that they are charged to. A
/// device is a thread or a rank here, and what each of them holds is what data parallelism is
/// about. Tensors are credited back to the account that they were charged to, whichever thread
/// frees them.
///
/// Each DeviceMemory of a GPU computes on a stream of its own. Several may share a GPU.
class DeviceMemory {
 public:
  struct Account;  ///< opaque; tensors share it, so they may outlive the DeviceMemory

  /// `gpu` counts what CUDA_VISIBLE_DEVICES leaves. Throws std::runtime_error where a GPU cannot be
  /// used, saying what is missing: driver, device, cuBLAS, CUDA in this build.
  explicit DeviceMemory(Residence residence = Residence::kHost, int gpu = 0);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  Residence residence() const { return residence_; }
  MemoryUse use() const;
  void reset_peak();
  /// Until all that was enqueued on a GPU is done. Throws std::runtime_error where the GPU failed.
  void wait();
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
  Residence residence_;
  std::shared_ptr<Account> account_;
};

/// Page-locks so many bytes of host memory for a moment. Throws std::runtime_error, naming the
/// device, where that cannot be; memory of kPageLocked is then pageable as far as it has to be.
void try_page_lock(int gpu, std::size_t bytes);

/// An allocation beyond DeviceMemory::set_limit(); the tensor was not made, nothing else changed.
class OutOfDeviceMemory : public std::runtime_error {
 public:
  /// `where` names the device; empty: the host.
  OutOfDeviceMemory(std::size_t bytes, std::size_t in_use, std::size_t limit,
                    const std::string& where = {});
  std::size_t bytes() const { return bytes_; }
  std::size_t in_use() const { return in_use_; }
  std::size_t limit() const { return limit_; }

 private:
  std::size_t bytes_, in_use_, limit_;
};

class Tensor {
 public:
  Tensor() = default;            ///< no elements, shape [0]
  explicit Tensor(Shape shape);  ///< zeros
  /// Copies the data to where the calling thread's tensors lie, which may be elsewhere.
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept;  ///< other becomes empty
  Tensor& operator=(Tensor other) noexcept;

  /// Values are whatever the memory held: for results that are written in full.
  static Tensor uninitialised(Shape shape);
  /// The same, where the tensors of `account` lie; null: the host, charged to nobody.
  static Tensor uninitialised(Shape shape, const std::shared_ptr<DeviceMemory::Account>& account);

  /// Zeros in the host's memory, wherever the calling thread's tensors lie; charged to its account
  /// only where they lie there too.
  static Tensor for_host(Shape shape);

  /// Whether the host may touch data() and values(); else they are addresses of a GPU.
  bool on_host() const;
  /// A copy in the host's memory, charged to nobody.
  Tensor to_host() const;
  /// Who is charged; null: nobody.
  const std::shared_ptr<DeviceMemory::Account>& account() const {
    return data_.get_deleter().account;
  }

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
    Free(std::shared_ptr<DeviceMemory::Account> charged, std::size_t count)
        : account(std::move(charged)), bytes(count) {}
    void operator()(float* data) const;
  };
  Shape shape_{0};
  std::size_t size_ = 0;
  std::unique_ptr<float[], Free> data_;
};

}  // namespace unisono::train
