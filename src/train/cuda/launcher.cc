#include "train/cuda/launcher.h"

#include <algorithm>

#include "cuda/kernels/embedded_kernels.h"
#include "train/cuda/kernels/launch_shape.h"

UNISONO_EMBED_KERNELS(unisono_train_kernels_elements,
                      UNISONO_TRAIN_KERNEL_IMAGES "/kernels_elements.fatbin")
UNISONO_EMBED_KERNELS(unisono_train_kernels_layers,
                      UNISONO_TRAIN_KERNEL_IMAGES "/kernels_layers.fatbin")

namespace unisono::train {
namespace {

struct Named {
  KernelNumber number;
  const char* name;
};
struct KernelImage {
  const unsigned char* code;
  std::vector<Named> kernels;
};

#define UNISONO_TRAIN_NAMED(name, ...) {KernelNumber::name, #name},

const std::vector<KernelImage>& images() {
  static const auto* const all = new std::vector<KernelImage>{
      {unisono_train_kernels_elements, {UNISONO_TRAIN_ELEMENT_KERNELS(UNISONO_TRAIN_NAMED)}},
      {unisono_train_kernels_layers, {UNISONO_TRAIN_LAYER_KERNELS(UNISONO_TRAIN_NAMED)}}};
  return *all;
}

const char* name_of(KernelNumber number) {
  for (const KernelImage& image : images()) {
    for (const Named& kernel : image.kernels) {
      if (kernel.number == number) return kernel.name;
    }
  }
  return "a kernel";
}

}  // namespace

Launcher::Launcher(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {
  try {
    load();
  } catch (...) {
    close();
    throw;
  }
}

Launcher::~Launcher() { close(); }

void Launcher::close() noexcept {
  const Gpu::QuietScope scope(*gpu_);
  if (!scope) return;
  for (CUlibrary library : libraries_) gpu_->api().LibraryUnload(library);
}

void Launcher::load() {
  const cuda::CudaApi& api = gpu_->api();
  const Gpu::Scope scope(*gpu_);
  for (const KernelImage& image : images()) {
    CUlibrary library = nullptr;
    gpu_->check(api.LibraryLoadData(&library, image.code, nullptr, nullptr, 0, nullptr, nullptr, 0),
                "loading the trainer's kernels");
    libraries_.push_back(library);
    for (const auto& [number, name] : image.kernels) {
      const auto check = [&, name = name](CUresult result) {
        if (result != CUDA_SUCCESS) gpu_->fail(result, std::string("loading ") + name);
      };
      CUkernel kernel = nullptr;
      CUfunction& function = functions_[static_cast<std::size_t>(number)];
      check(api.LibraryGetKernel(&kernel, library, name));
      check(api.KernelGetFunction(&function, kernel));
      if (api.FuncLoad != nullptr) check(api.FuncLoad(function));
    }
  }
}

void Launcher::launch(CUstream stream, KernelNumber number, const void* kernel,
                      std::uint64_t items) const {
  if (items == 0) return;
  constexpr std::uint64_t kThreads = kernels::kBlockThreads;
  const std::uint64_t most = std::uint64_t{kernels::kBlocksPerMultiprocessor} *
                             static_cast<std::uint64_t>(std::max(gpu_->multiprocessors(), 1));
  const auto blocks = static_cast<unsigned>(std::min((items + kThreads - 1) / kThreads, most));
  void* parameters[] = {const_cast<void*>(kernel)};
  const Gpu::Scope scope(*gpu_);
  const CUresult result =
      gpu_->api().LaunchKernel(functions_[static_cast<std::size_t>(number)], blocks, 1, 1,
                               kernels::kBlockThreads, 1, 1, 0, stream, parameters, nullptr);
  if (result != CUDA_SUCCESS) gpu_->fail(result, std::string("launching ") + name_of(number));
}

}  // namespace unisono::train
