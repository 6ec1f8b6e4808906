#include "train/cuda/products.h"

#include <limits>
#include <stdexcept>

namespace unisono::train {
namespace {

/// What the manual of cuBLAS asks for: 32 MiB from compute capability 9.0 on, 4 before.
std::size_t workspace_bytes(const Gpu& gpu) {
  return std::size_t{gpu.capability_major() >= 9 ? 32u : 4u} << 20;
}

std::shared_ptr<const CublasApi> load_for(const Gpu& gpu) {
  try {
    return load_cublas(gpu.cublas_file(), gpu.cuda_major());
  } catch (const std::runtime_error& error) {
    gpu.fail(error.what());
  }
}

// Each backend has one.
Scratch make_workspace(const Gpu& gpu, BlockCache& blocks) {
  try {
    return Scratch(blocks, workspace_bytes(gpu));
  } catch (const OutOfDeviceMemory&) {
    gpu.fail("no room for cuBLAS' workspace of " + std::to_string(workspace_bytes(gpu) >> 20) +
             " MiB; let fewer ranks share the GPU, or see with nvidia-smi who else uses it");
  }
}

std::string text(const Product& product) {
  return "[" + std::to_string(product.rows) + ", " + std::to_string(product.inner) + "] by [" +
         std::to_string(product.inner) + ", " + std::to_string(product.columns) + "]";
}

}  // namespace

/// A matrix by rows is its transpose by columns: result^T = right^T * left^T.
struct Products::Call {
  int rows, columns, inner;  ///< cuBLAS' m, n and k: of the transposed result
  CublasOperation first, second;
  int first_stride, second_stride, result_stride;
  float alpha, beta;
};

Products::Products(std::shared_ptr<const Gpu> gpu, CUstream stream, BlockCache& blocks)
    : gpu_(std::move(gpu)), api_(load_for(*gpu_)), workspace_(make_workspace(*gpu_, blocks)) {
  const Gpu::Scope scope(*gpu_);
  check(api_->Create(&handle_), "opening cuBLAS");
  try {
    check(api_->SetStream(handle_, stream), "choosing cuBLAS' stream");
    check(api_->SetWorkspace(handle_, workspace_.get(), workspace_bytes(*gpu_)),
          "giving cuBLAS its workspace");
    check(api_->SetMathMode(handle_, kCublasDefaultMath), "choosing cuBLAS' precision");
  } catch (...) {
    api_->Destroy(handle_);
    throw;
  }
}

Products::~Products() {
  const Gpu::QuietScope scope(*gpu_);
  if (scope) api_->Destroy(handle_);
}

void Products::check(CublasStatus status, const std::string& what) const {
  if (status == kCublasSuccess) return;
  const char* words = api_->GetStatusString(status);
  gpu_->fail(what + ": cuBLAS says " + (words != nullptr ? words : "nothing") + " (" +
             std::to_string(status) + ")");
}

int Products::narrowed(std::size_t extent, const Product& product) const {
  constexpr auto kMost = std::size_t{std::numeric_limits<int>::max()};
  if (extent <= kMost) return static_cast<int>(extent);
  gpu_->fail("a product of " + text(product) + ": cuBLAS takes extents and strides up to " +
             std::to_string(kMost) + ", not " + std::to_string(extent) +
             "; use a smaller batch or layer");
}

Products::Call Products::call_of(const Product& product) const {
  const auto number = [&](std::size_t extent) { return narrowed(extent, product); };
  return {number(product.columns),
          number(product.rows),
          number(product.inner),
          product.right.transposed ? kCublasTransposed : kCublasPlain,
          product.left.transposed ? kCublasTransposed : kCublasPlain,
          number(product.right.stride),
          number(product.left.stride),
          number(product.result_stride),
          1.0F,
          product.accumulate ? 1.0F : 0.0F};
}

void Products::multiply(const Product& product) {
  const Call call = call_of(product);
  const Gpu::Scope scope(*gpu_);
  const CublasStatus status =
      api_->Sgemm(handle_, call.first, call.second, call.rows, call.columns, call.inner,
                  &call.alpha, product.right.data, call.first_stride, product.left.data,
                  call.second_stride, &call.beta, product.result, call.result_stride);
  if (status != kCublasSuccess) check(status, "a product of " + text(product));
}

void Products::multiply(const Product& product, const ProductBatch& batch) {
  const Call call = call_of(product);
  const auto step = [](std::size_t elements) { return static_cast<long long int>(elements); };
  const Gpu::Scope scope(*gpu_);
  const CublasStatus status = api_->SgemmStridedBatched(
      handle_, call.first, call.second, call.rows, call.columns, call.inner, &call.alpha,
      product.right.data, call.first_stride, step(batch.right_step), product.left.data,
      call.second_stride, step(batch.left_step), &call.beta, product.result, call.result_stride,
      step(batch.result_step), narrowed(batch.count, product));
  if (status != kCublasSuccess) {
    check(status, std::to_string(batch.count) + " products of " + text(product));
  }
}

}  // namespace unisono::train
