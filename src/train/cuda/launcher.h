// The trainer's kernels on one GPU: loading and launching. Immutable after construction; any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "train/cuda/gpu.h"
#include "train/cuda/kernels/list.h"

namespace unisono::train {

#define UNISONO_TRAIN_NUMBER(name, ...) name,
/// Of every kernel of kernels/list.h, under its name.
enum class KernelNumber : std::uint8_t {
  UNISONO_TRAIN_ELEMENT_KERNELS(UNISONO_TRAIN_NUMBER)  //
  UNISONO_TRAIN_LAYER_KERNELS(UNISONO_TRAIN_NUMBER) kCount
};
#undef UNISONO_TRAIN_NUMBER

namespace kernels {
template <class Kernel>
inline constexpr KernelNumber kNumberOf = KernelNumber::kCount;
#define UNISONO_TRAIN_NUMBER_OF(name, ...) \
  template <>                              \
  inline constexpr KernelNumber kNumberOf<__VA_ARGS__> = KernelNumber::name;
UNISONO_TRAIN_ELEMENT_KERNELS(UNISONO_TRAIN_NUMBER_OF)
UNISONO_TRAIN_LAYER_KERNELS(UNISONO_TRAIN_NUMBER_OF)
#undef UNISONO_TRAIN_NUMBER_OF
}  // namespace kernels

class Launcher {
 public:
  /// Loads every kernel, so that no launch does.
  explicit Launcher(std::shared_ptr<const Gpu> gpu);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Enqueues all items of the kernel; nothing without any.
  template <class Kernel>
  void launch(CUstream stream, const Kernel& kernel) const {
    static_assert(kernels::kNumberOf<Kernel> != KernelNumber::kCount, "not in kernels/list.h");
    static_assert(std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= 256);
    launch(stream, kernels::kNumberOf<Kernel>, &kernel, kernel.items);
  }

 private:
  static constexpr std::size_t kKernels = static_cast<std::size_t>(KernelNumber::kCount);

  void launch(CUstream stream, KernelNumber number, const void* kernel, std::uint64_t items) const;
  void load();
  void close() noexcept;

  const std::shared_ptr<const Gpu> gpu_;
  std::vector<CUlibrary> libraries_;
  std::array<CUfunction, kKernels> functions_{};
};

}  // namespace unisono::train
