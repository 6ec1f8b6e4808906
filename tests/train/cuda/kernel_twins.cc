#include "tests/train/cuda/kernel_twins.h"

#include <type_traits>

#include "train/cuda/kernels/list.h"

namespace unisono::train::kernels {
namespace {

template <class Kernel>
void translate(void* parameters, fake_cuda::Translator& translator) {
  static_cast<Kernel*>(parameters)->buffers([&](auto*& pointer, std::uint64_t elements) {
    using Pointer = std::remove_reference_t<decltype(pointer)>;
    using Element = std::remove_pointer_t<Pointer>;
    const auto access =
        std::is_const_v<Element> ? fake_cuda::Access::kRead : fake_cuda::Access::kWrite;
    pointer = static_cast<Pointer>(translator.at(pointer, elements * sizeof(Element), access));
  });
}

/// From the last item to the first: no item may count on another.
template <class Kernel>
void run(const void* parameters, fake_cuda::Dimensions, fake_cuda::Dimensions) {
  const Kernel& kernel = *static_cast<const Kernel*>(parameters);
  for (std::uint64_t item = kernel.items; item-- > 0;) kernel(item);
}

template <class Kernel>
constexpr fake_cuda::KernelTwin twin(const char* name) {
  return {name, sizeof(Kernel), translate<Kernel>, run<Kernel>};
}

}  // namespace

#define UNISONO_TRAIN_TWIN(name, ...) fake.register_kernel(twin<__VA_ARGS__>(#name));

void register_twins(const fake_cuda::FakeCudaFunctions& fake) {
  UNISONO_TRAIN_ELEMENT_KERNELS(UNISONO_TRAIN_TWIN)
  UNISONO_TRAIN_LAYER_KERNELS(UNISONO_TRAIN_TWIN)
}

}  // namespace unisono::train::kernels
