// torch.ops.unisono: blocking calls on CPU tensors as operators of torch. A call is what the C API
// makes of it: no future, no copy, no allocation, no lock.
//
// Each operator takes its group as a tensor that holds a handle, and says that it writes it. It
// does not; but so the calls of a group depend on each other, and what torch.compile makes of them
// has all of them, in their order, also those of which a rank uses no result.
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <limits>

#include "csrc/groups.h"
#include "csrc/tensors.h"

namespace unisono_torch {
namespace {

using at::Tensor;

// What a call may read or write in place. Autograd knows nothing of these calls.
void check_tensor(const Tensor& tensor, const char* operation) {
  TORCH_CHECK(!tensor.requires_grad() || !at::GradMode::is_enabled(), "unisono: ", operation,
              ": the tensor requires grad, and there are no gradients of this call: make it under "
              "torch.no_grad() or torch.inference_mode(), or on tensor.detach()");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), "unisono: ", operation,
                    ": the tensor is not contiguous: sizes ", tensor.sizes(), ", strides ",
                    tensor.strides());
}

// `output` has as many bytes as `blocks` of `block`, of the same type.
void check_blocks(const Tensor& output, const Tensor& block, int blocks, const char* operation) {
  check_tensor(output, operation);
  check_tensor(block, operation);
  TORCH_CHECK_TYPE(output.scalar_type() == block.scalar_type(), "unisono: ", operation,
                   ": the tensors differ in type: ", output.scalar_type(), " and ",
                   block.scalar_type());
  TORCH_CHECK_VALUE(output.numel() == block.numel() * blocks, "unisono: ", operation, ": ",
                    output.numel(), " elements are not ", blocks, " times ", block.numel());
}

// torch's numbers have 64 bits, those of the C API fewer.
template <typename Number>
Number narrowed(int64_t value, const char* what, const char* operation) {
  constexpr int64_t kLeast = std::numeric_limits<Number>::min();
  constexpr int64_t kMost = std::numeric_limits<Number>::max();
  TORCH_CHECK_VALUE(value >= kLeast && value <= kMost, "unisono: ", operation, ": the ", what,
                    " is ", value, ", accepted are ", kLeast, " to ", kMost);
  return static_cast<Number>(value);
}

unisono_op operator_of(int64_t op, const char* operation) {
  return static_cast<unisono_op>(narrowed<int32_t>(op, "operator", operation));
}

size_t count_of(const Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

// Arguments that the library refuses are this rank's alone, and nothing was sent.
void finish(unisono_code code, const char* operation) {
  if (code == UNISONO_INVALID_ARGUMENT) C10_THROW_ERROR(ValueError, last_error_text(operation));
  check(code, operation);
}

void all_reduce(const Tensor& tensor, const Tensor& group, int64_t op) {
  constexpr const char* kName = "all_reduce_";
  const UsedGroup on(group, kName);
  check_tensor(tensor, kName);
  void* const data = tensor.data_ptr();
  finish(unisono_all_reduce(on.comm(), data, data, count_of(tensor), type_of(tensor, kName),
                            operator_of(op, kName), nullptr),
         kName);
}

void reduce_scatter_tensor(const Tensor& output, const Tensor& input, const Tensor& group,
                           int64_t op) {
  constexpr const char* kName = "reduce_scatter_tensor";
  const UsedGroup on(group, kName);
  check_blocks(input, output, on.size(), kName);
  finish(
      unisono_reduce_scatter(on.comm(), input.const_data_ptr(), output.data_ptr(), count_of(output),
                             type_of(input, kName), operator_of(op, kName), nullptr),
      kName);
}

void all_gather_into_tensor(const Tensor& output, const Tensor& input, const Tensor& group) {
  constexpr const char* kName = "all_gather_into_tensor";
  const UsedGroup on(group, kName);
  check_blocks(output, input, on.size(), kName);
  const Unit unit = unit_of(input);
  finish(unisono_all_gather(on.comm(), input.const_data_ptr(), output.data_ptr(), unit.count,
                            unit.type, nullptr),
         kName);
}

void gather_into_tensor(const std::optional<Tensor>& output, const Tensor& input,
                        const Tensor& group, int64_t root) {
  constexpr const char* kName = "gather_into_tensor";
  const UsedGroup on(group, kName);
  check_tensor(input, kName);
  void* out = nullptr;
  if (unisono_comm_rank(on.comm()) == root) {
    TORCH_CHECK_VALUE(output.has_value(), "unisono: ", kName, ": the root needs an output");
    check_blocks(*output, input, on.size(), kName);
    out = output->data_ptr();
  }
  const Unit unit = unit_of(input);
  finish(unisono_gather(on.comm(), input.const_data_ptr(), out, unit.count, unit.type,
                        narrowed<int32_t>(root, "root", kName), nullptr),
         kName);
}

void broadcast(const Tensor& tensor, const Tensor& group, int64_t root) {
  constexpr const char* kName = "broadcast_";
  const UsedGroup on(group, kName);
  check_tensor(tensor, kName);
  const Unit unit = unit_of(tensor);
  finish(unisono_broadcast(on.comm(), tensor.data_ptr(), unit.count, unit.type,
                           narrowed<int32_t>(root, "root", kName), nullptr),
         kName);
}

void send(const Tensor& tensor, const Tensor& group, int64_t peer, int64_t tag) {
  constexpr const char* kName = "send";
  const UsedGroup on(group, kName);
  check_tensor(tensor, kName);
  const Unit unit = unit_of(tensor);
  finish(unisono_send(on.comm(), tensor.const_data_ptr(), unit.count, unit.type,
                      narrowed<int32_t>(peer, "peer", kName), narrowed<uint32_t>(tag, "tag", kName),
                      nullptr),
         kName);
}

void receive(const Tensor& tensor, const Tensor& group, int64_t peer, int64_t tag) {
  constexpr const char* kName = "receive_";
  const UsedGroup on(group, kName);
  check_tensor(tensor, kName);
  unisono_received received = UNISONO_RECEIVED_INIT;
  const Unit unit = unit_of(tensor);
  finish(unisono_receive(on.comm(), tensor.data_ptr(), unit.count, unit.type,
                         narrowed<int32_t>(peer, "peer", kName),
                         narrowed<uint32_t>(tag, "tag", kName), &received, nullptr),
         kName);
  TORCH_CHECK_VALUE(received.count == unit.count, "unisono: ", kName, ": rank ", received.source,
                    " sent ", received.count * unit.bytes, " bytes, the tensor has ",
                    tensor.nbytes());
}

void barrier(const Tensor& group) {
  finish(unisono_barrier(UsedGroup(group, "barrier").comm(), nullptr), "barrier");
}

// What a call means for shapes and types: nothing.
template <typename... Arguments>
void trace(Arguments...) {}

// Both forms of an operator.
template <typename... Arguments>
void implement(torch::Library& library, bool is_meta, const char* name,
               void (*call)(Arguments...)) {
  library.impl(name, is_meta ? &trace<Arguments...> : call);
}

void implement_all(torch::Library& library, bool is_meta) {
  implement(library, is_meta, "all_reduce_", all_reduce);
  implement(library, is_meta, "reduce_scatter_tensor", reduce_scatter_tensor);
  implement(library, is_meta, "all_gather_into_tensor", all_gather_into_tensor);
  implement(library, is_meta, "gather_into_tensor", gather_into_tensor);
  implement(library, is_meta, "broadcast_", broadcast);
  implement(library, is_meta, "send", send);
  implement(library, is_meta, "receive_", receive);
  implement(library, is_meta, "barrier", barrier);
}

}  // namespace
}  // namespace unisono_torch

TORCH_LIBRARY(unisono, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag, at::Tag::needs_fixed_stride_order};
  for (const char* const schema : {
           "all_reduce_(Tensor(a!) tensor, Tensor(b!) group, int op=0) -> ()",
           "reduce_scatter_tensor(Tensor(a!) output, Tensor input, Tensor(b!) group, int op=0) -> "
           "()",
           "all_gather_into_tensor(Tensor(a!) output, Tensor input, Tensor(b!) group) -> ()",
           "gather_into_tensor(Tensor(a!)? output, Tensor input, Tensor(b!) group, int root=0) -> "
           "()",
           "broadcast_(Tensor(a!) tensor, Tensor(b!) group, int root=0) -> ()",
           "send(Tensor tensor, Tensor(a!) group, int peer, int tag=0) -> ()",
           "receive_(Tensor(a!) tensor, Tensor(b!) group, int peer, int tag=0) -> ()",
           "barrier(Tensor(a!) group) -> ()",
       }) {
    library.def(schema, tags);
  }
}

TORCH_LIBRARY_IMPL(unisono, CPU, library) { unisono_torch::implement_all(library, false); }

TORCH_LIBRARY_IMPL(unisono, Meta, library) { unisono_torch::implement_all(library, true); }
