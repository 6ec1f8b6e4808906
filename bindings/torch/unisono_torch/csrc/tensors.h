// Tensors and operators of torch as buffers, types and operators of the C API.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "unisono/unisono.h"

namespace unisono_torch {

/// Throws for tensors that no call takes: sparse ones, other devices.
void check_dense(const at::Tensor& tensor, const char* operation);
/// The same for all tensors of a call, and where they are not on one device.
void check_dense(const std::vector<at::Tensor>& tensors, const char* operation);
void check_single(const std::vector<at::Tensor>& tensors, const char* operation);
/// Throws where two tensors of a call differ in type or device.
void check_alike(const at::Tensor& a, const at::Tensor& b, const char* operation);

/// Throws where elements of a tensor that is written share memory, as those of expand() do.
void check_writable(const at::Tensor& tensor, const char* operation);

struct Bytes {
  const void* data;
  size_t size;
};
/// Throws where a rank's block is in the memory of all ranks' blocks and not at its own place,
/// which is `place` bytes from the start.
void check_place(const Bytes& block, const Bytes& all, size_t place, const char* operation);

/// The element type of a reduction.
unisono_type type_of(const at::Tensor& tensor, const char* operation);

/// In what the library counts a tensor that is only moved: its own elements, so that ranks whose
/// types differ are told, or bytes where the library does not know the type.
struct Unit {
  unisono_type type;
  size_t bytes;  ///< of one
  size_t count;  ///< in the tensor
};
Unit unit_of(const at::Tensor& tensor);
/// Of each.
std::vector<size_t> units_of(const std::vector<at::Tensor>& tensors);

/// Splits of an all_to_all along the first dimension, in units; no splits are even ones. `which`
/// tensor it is, for errors.
std::vector<size_t> split_units(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                int size, const char* which);

/// The operator, and in `options` what it needs. `options->size` is set.
unisono_op op_of(const c10d::ReduceOp& op, const at::Tensor& tensor, const char* operation,
                 unisono_call_options* options);

/// A tensor of its own in one dimension, for blocks that lie end to end.
at::Tensor flat_like(const at::Tensor& model, int64_t elements);
/// The tensors' elements end to end: a view where they already lie so, else a copy.
at::Tensor joined(const std::vector<at::Tensor>& tensors, const char* operation);
/// The same for outputs: what stands in a returned copy is put in place by `unjoin`.
at::Tensor room_for(const std::vector<at::Tensor>& tensors, const char* operation);
/// Copies the parts of `flat` to the tensors, unless they are views of it.
void unjoin(const at::Tensor& flat, const std::vector<at::Tensor>& tensors);

bool have_equal_sizes(const std::vector<at::Tensor>& tensors);

}  // namespace unisono_torch
