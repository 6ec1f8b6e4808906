#include "csrc/tensors.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include <optional>
#include <string>

namespace unisono_torch {
namespace {

// The first that has elements: an empty tensor has no address. Where all are empty, the first.
const at::Tensor& first_filled(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) return tensor;
  }
  return tensors.front();
}

// One after the other in the memory of the first.
bool lie_end_to_end(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = first_filled(tensors);
  const char* next = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    if (!tensor.is_contiguous() || !tensor.is_alias_of(first)) return false;
    const char* const data = static_cast<const char*>(tensor.data_ptr());
    if (next != nullptr && data != next) return false;
    next = data + tensor.nbytes();
  }
  return true;
}

int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  return elements;
}

// All elements of tensors that lie end to end.
at::Tensor view_of_all(const std::vector<at::Tensor>& tensors) {
  return first_filled(tensors).as_strided({elements_of(tensors)}, {1});
}

void check_list(const std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK(!tensors.empty(), "unisono: ", operation, ": the list of tensors is empty");
  for (const at::Tensor& tensor : tensors) check_alike(tensors.front(), tensor, operation);
}

void check_device(const at::Tensor& a, const at::Tensor& b, const char* operation) {
  TORCH_CHECK(a.device() == b.device(), "unisono: ", operation,
              ": the tensors are on different devices: ", a.device(), " and ", b.device());
}

double factor_of(const c10d::ReduceOp& op, const char* operation) {
  const auto* const supplement =
      dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "unisono: ", operation, ": PREMUL_SUM has no factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item().toDouble()
                                             : supplement->double_factor;
}

std::optional<unisono_type> known_type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte:
      return UNISONO_UINT8;
    case at::kChar:
      return UNISONO_INT8;
    case at::kShort:
      return UNISONO_INT16;
    case at::kInt:
      return UNISONO_INT32;
    case at::kLong:
      return UNISONO_INT64;
    case at::kUInt16:
      return UNISONO_UINT16;
    case at::kUInt32:
      return UNISONO_UINT32;
    case at::kUInt64:
      return UNISONO_UINT64;
    case at::kHalf:
      return UNISONO_FLOAT16;
    case at::kBFloat16:
      return UNISONO_BFLOAT16;
    case at::kFloat:
      return UNISONO_FLOAT32;
    case at::kDouble:
      return UNISONO_FLOAT64;
    case at::kBool:
      return UNISONO_BOOL;
    case at::kComplexFloat:
      return UNISONO_COMPLEX64;
    case at::kComplexDouble:
      return UNISONO_COMPLEX128;
    case at::kFloat8_e4m3fn:
      return UNISONO_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
      return UNISONO_FLOAT8_E5M2;
    default:
      return std::nullopt;
  }
}

}  // namespace

void check_dense(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "unisono: ", operation, ": the tensor is sparse (",
              tensor.layout(), "); only dense ones are supported");
  TORCH_CHECK(tensor.is_cpu() || tensor.is_cuda(), "unisono: ", operation, ": the tensor is on ",
              tensor.device(), "; supported are cpu and cuda");
}

void check_dense(const std::vector<at::Tensor>& tensors, const char* operation) {
  for (const at::Tensor& tensor : tensors) {
    check_dense(tensor, operation);
    check_device(tensors.front(), tensor, operation);
  }
}

void check_single(const std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK(tensors.size() == 1, "unisono: ", operation, ": takes one tensor for each rank, not ",
              tensors.size());
  check_dense(tensors.front(), operation);
}

void check_alike(const at::Tensor& a, const at::Tensor& b, const char* operation) {
  check_dense(b, operation);
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "unisono: ", operation,
              ": the tensors differ in type: ", a.scalar_type(), " and ", b.scalar_type());
  check_device(a, b, operation);
}

void check_writable(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "unisono: ", operation,
              ": elements of the tensor share memory, as those of expand() do, and the call writes "
              "to it: give a clone() of it");
}

void check_place(const Bytes& block, const Bytes& all, size_t place, const char* operation) {
  const auto* const from = static_cast<const char*>(block.data);
  const auto* const start = static_cast<const char*>(all.data);
  const bool is_apart = from + block.size <= start || start + all.size <= from;
  TORCH_CHECK(is_apart || from == start + place, "unisono: ", operation, ": the ", block.size,
              " bytes of this rank overlap those of all ranks, ", from - start,
              " bytes from their start; give other memory, or this rank's place there, at ", place);
}

unisono_type type_of(const at::Tensor& tensor, const char* operation) {
  const std::optional<unisono_type> type = known_type_of(tensor);
  TORCH_CHECK_TYPE(type.has_value(), "unisono: ", operation, ": tensors of ", tensor.scalar_type(),
                   " cannot be reduced");
  return *type;
}

Unit unit_of(const at::Tensor& tensor) {
  const std::optional<unisono_type> type = known_type_of(tensor);
  if (!type) return {UNISONO_UINT8, 1, tensor.nbytes()};
  return {*type, tensor.element_size(), static_cast<size_t>(tensor.numel())};
}

namespace {

unisono_op known_op_of(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* operation,
                       unisono_call_options* options) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return UNISONO_OP_SUM;
    case c10d::ReduceOp::AVG:
      TORCH_CHECK(tensor.is_floating_point() || tensor.is_complex(), "unisono: ", operation,
                  ": AVG needs floating-point or complex tensors, not ", tensor.scalar_type());
      return UNISONO_OP_AVERAGE;
    case c10d::ReduceOp::PRODUCT:
      return UNISONO_OP_PRODUCT;
    case c10d::ReduceOp::MIN:
      return UNISONO_OP_MIN;
    case c10d::ReduceOp::MAX:
      return UNISONO_OP_MAX;
    case c10d::ReduceOp::BAND:
      return UNISONO_OP_BIT_AND;
    case c10d::ReduceOp::BOR:
      return UNISONO_OP_BIT_OR;
    case c10d::ReduceOp::BXOR:
      return UNISONO_OP_BIT_XOR;
    case c10d::ReduceOp::PREMUL_SUM:
      options->factor = factor_of(op, operation);
      return UNISONO_OP_PREMULTIPLIED_SUM;
    default:
      TORCH_CHECK(false, "unisono: ", operation, ": the reduction is not known");
  }
}

}  // namespace

unisono_op op_of(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* operation,
                 unisono_call_options* options) {
  const unisono_type type = type_of(tensor, operation);
  const unisono_op known = known_op_of(op, tensor, operation, options);
  TORCH_CHECK(unisono_op_is_meaningful(known, type) != 0, "unisono: ", operation, ": operator ",
              unisono_op_name(known), " has no meaning on ", unisono_type_name(type));
  return known;
}

at::Tensor flat_like(const at::Tensor& model, int64_t elements) {
  return at::empty({elements}, model.options());
}

at::Tensor joined(const std::vector<at::Tensor>& tensors, const char* operation) {
  check_list(tensors, operation);
  if (lie_end_to_end(tensors)) return view_of_all(tensors);
  std::vector<at::Tensor> parts;
  parts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.reshape({-1}));
  return at::cat(parts);
}

at::Tensor room_for(const std::vector<at::Tensor>& tensors, const char* operation) {
  check_list(tensors, operation);
  if (lie_end_to_end(tensors)) return view_of_all(tensors);
  for (const at::Tensor& tensor : tensors) check_writable(tensor, operation);
  return flat_like(tensors.front(), elements_of(tensors));
}

void unjoin(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  if (flat.is_alias_of(first_filled(tensors))) return;
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

bool have_equal_sizes(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != tensors.front().numel()) return false;
  }
  return true;
}

std::vector<size_t> units_of(const std::vector<at::Tensor>& tensors) {
  std::vector<size_t> units;
  units.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) units.push_back(unit_of(tensor).count);
  return units;
}

std::vector<size_t> split_units(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                int size, const char* which) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const size_t whole = unit_of(tensor).count;
  const size_t row_units = rows == 0 ? 0 : whole / static_cast<size_t>(rows);
  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, "unisono: all_to_all: the first dimension of the ", which, " is ",
                rows, ", which ", size, " ranks do not divide; give split sizes");
    return std::vector<size_t>(static_cast<size_t>(size), whole / size);
  }
  TORCH_CHECK(static_cast<int>(splits.size()) == size, "unisono: all_to_all: ", splits.size(),
              " split sizes of the ", which, " for ", size, " ranks");
  std::vector<size_t> units;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    TORCH_CHECK(split >= 0 && split <= rows, "unisono: all_to_all: a split size of the ", which,
                " is ", split, ", its first dimension is ", rows);
    sum += split;
    units.push_back(static_cast<size_t>(split) * row_units);
  }
  TORCH_CHECK(sum == rows, "unisono: all_to_all: the split sizes of the ", which, " add up to ",
              sum, ", its first dimension is ", rows);
  return units;
}

}  // namespace unisono_torch
