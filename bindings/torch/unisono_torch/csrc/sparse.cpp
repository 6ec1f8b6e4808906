// all_reduce of sparse COO tensors, as gradients of embeddings are: every rank gets all ranks'
// indices, and the values of all of them are a dense all_reduce, zeros where a rank has none. So
// their sum keeps the order that the job asks for.
//
// How many elements the others have is needed first, so the call has ended when it returns.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <numeric>

#include "csrc/backend.h"
#include "csrc/tensors.h"

namespace unisono_torch {
namespace {

using c10d::ReduceOp;

constexpr const char* kName = "all_reduce of a sparse tensor";
// A rank's row: how many elements it has, and what is the same on all ranks.
constexpr int64_t kDimensionsMax = 12;
constexpr int64_t kElements = 0, kType = 1, kSparseDimensions = 2, kDimensions = 3, kSizes = 4;
constexpr int64_t kRow = kSizes + kDimensionsMax;

bool is_average(const ReduceOp& op) {
  return static_cast<ReduceOp::RedOpType>(op) == ReduceOp::AVG;
}

void check_sparse(const Tensors& tensors, const ReduceOp& op) {
  TORCH_CHECK(tensors.size() == 1, "unisono: ", kName, ": takes one tensor for each rank, not ",
              tensors.size());
  const at::Tensor& tensor = tensors[0];
  TORCH_CHECK(tensor.layout() == at::kSparse, "unisono: ", kName, ": the layout is ",
              tensor.layout(), "; supported is COO");
  TORCH_CHECK(tensor.is_cpu() || tensor.is_cuda(), "unisono: ", kName, ": the tensor is on ",
              tensor.device(), "; supported are cpu and cuda");
  TORCH_CHECK(static_cast<ReduceOp::RedOpType>(op) == ReduceOp::SUM || is_average(op),
              "unisono: ", kName,
              ": supported are SUM and AVG, since elements that are not there are zeros");
  TORCH_CHECK(!is_average(op) || tensor.is_floating_point() || tensor.is_complex(),
              "unisono: ", kName, ": AVG needs floating-point or complex tensors, not ",
              tensor.scalar_type());
  TORCH_CHECK(tensor.dim() <= kDimensionsMax, "unisono: ", kName, ": the tensor has ", tensor.dim(),
              " dimensions, accepted are up to ", kDimensionsMax);
}

at::Tensor row_of(const at::Tensor& tensor) {
  at::Tensor row = at::zeros({kRow}, at::kLong);
  auto* const numbers = row.mutable_data_ptr<int64_t>();
  numbers[kElements] = tensor._nnz();
  numbers[kType] = static_cast<int64_t>(tensor.scalar_type());
  numbers[kSparseDimensions] = tensor.sparse_dim();
  numbers[kDimensions] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), numbers + kSizes);
  return row;
}

// How many elements each rank has.
std::vector<int64_t> counts_of(const at::Tensor& rows) {
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < rows.size(0); ++rank) {
    const at::Tensor row = rows[rank];
    TORCH_CHECK(at::equal(row.slice(0, kType), rows[0].slice(0, kType)), "unisono: ", kName,
                ": type or shape of rank ", rank, "'s tensor differ from rank 0's");
    counts.push_back(row[kElements].item<int64_t>());
  }
  return counts;
}

// A tensor for all ranks' rows one after the other, and its parts.
std::pair<at::Tensor, Tensors> room_for_rows(const at::Tensor& own,
                                             const std::vector<int64_t>& counts) {
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes[0] = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const at::Tensor all = at::empty(sizes, own.options());
  return {all, all.split_with_sizes(counts)};
}

// `own` with zeros at the indices of the other ranks: its values stand where theirs do. A row of
// `indices` is an element of all ranks; those from `first` on are its own.
at::Tensor on_all_indices(const at::Tensor& own, const at::Tensor& indices, int64_t first) {
  std::vector<int64_t> sizes = own.values().sizes().vec();
  sizes[0] = indices.size(0);
  const at::Tensor values = at::zeros(sizes, own.values().options());
  values.narrow(0, first, own._nnz()).copy_(own.values());
  return at::_sparse_coo_tensor_unsafe(indices.t(), values, own.sizes(), own.options()).coalesce();
}

}  // namespace

at::Tensor UnisonoBackend::gather_rows(const at::Tensor& own, const std::vector<int64_t>& counts,
                                       std::chrono::milliseconds timeout) {
  auto [all, parts] = room_for_rows(own, counts);
  TensorLists outputs{std::move(parts)};
  Tensors inputs{own};
  c10d::AllgatherOptions options;
  options.timeout = timeout;
  allgather(outputs, inputs, options)->wait();
  return all;
}

WorkPointer UnisonoBackend::allreduce_sparse(Tensors& tensors,
                                             const c10d::AllreduceOptions& options) {
  Unfinished unfinished(this);
  const ReduceOp& op = options.reduceOp;
  check_sparse(tensors, op);
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensors[0].detach().coalesce();
  const std::vector<int64_t> one_each(static_cast<size_t>(getSize()), 1);
  const auto counts = counts_of(gather_rows(row_of(own).unsqueeze(0), one_each, options.timeout));
  // An element's indices are a row, as its values are.
  const at::Tensor indices = gather_rows(own.indices().t().contiguous(), counts, options.timeout);
  const int64_t first = std::accumulate(counts.begin(), counts.begin() + getRank(), int64_t{0});
  const at::Tensor sum = on_all_indices(own, indices, first);
  Tensors values{sum.values()};
  allreduce(values, options)->wait();
  {
    // So that tensors of inference mode are written too.
    const at::AutoDispatchBelowADInplaceOrView below;
    tensors[0].copy_(sum);
  }
  WorkPointer work = give_ended("all_reduce", c10d::OpType::_ALLREDUCE_SPARSE, tensors);
  unfinished.release();
  return work;
}

}  // namespace unisono_torch
