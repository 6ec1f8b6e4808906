// Matrix products on one GPU by cuBLAS, in fp32, row-major as everywhere here. The same call gives
// the same bits: one handle, one stream, a workspace of fixed size. One thread at a time.
#pragma once

#include <memory>

#include "train/cuda/block_cache.h"
#include "train/cuda/cublas_api.h"
#include "train/model/backend.h"

namespace unisono::train {

/// The same product `count` times; elements from one to the next of each matrix.
struct ProductBatch {
  std::size_t count, left_step, right_step, result_step;
};

class Products {
 public:
  /// Of `gpu`, in the order of `stream`. std::runtime_error without a cuBLAS.
  Products(std::shared_ptr<const Gpu> gpu, CUstream stream, BlockCache& blocks);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// `inner` is not 0. std::runtime_error names an extent that is too large for cuBLAS.
  void multiply(const Product& product);
  void multiply(const Product& product, const ProductBatch& batch);

 private:
  struct Call;
  Call call_of(const Product& product) const;
  int narrowed(std::size_t extent, const Product& product) const;
  void check(CublasStatus status, const std::string& what) const;

  const std::shared_ptr<const Gpu> gpu_;
  const std::shared_ptr<const CublasApi> api_;
  const Scratch workspace_;
  CublasHandle handle_ = nullptr;
};

}  // namespace unisono::train
