#include "csrc/backend.h"

#include <limits>

#include "csrc/started.h"
#include "csrc/tensors.h"

namespace unisono_torch {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

// A call that only moves data, of as many elements as `model` has and of its type.
unisono_call move_of(unisono_collective collective, const at::Tensor& model, const void* in,
                     void* out) {
  unisono_call call = call_of(collective);
  call.in = in;
  call.out = out;
  const Unit unit = unit_of(model);
  call.type = unit.type;
  call.count = unit.count;
  return call;
}

void check_root(int64_t root, int size, const char* operation) {
  TORCH_CHECK(root >= 0 && root < size, "unisono: ", operation, ": the root is ", root,
              ", accepted are 0 to ", size - 1);
}

void check_root_list(const TensorLists& lists, bool is_root, int size, const char* operation,
                     const char* what) {
  const bool is_one = lists.size() == 1 && static_cast<int>(lists[0].size()) == size;
  TORCH_CHECK(is_root ? is_one : lists.empty(), "unisono: ", operation,
              ": the root has one list of as many ", what, " as ranks (", size,
              "), and no other rank has any");
}

void check_pairs(const Tensors& outputs, const Tensors& inputs, const char* operation) {
  TORCH_CHECK(outputs.size() == inputs.size(), "unisono: ", operation, ": ", outputs.size(),
              " outputs for ", inputs.size(), " inputs");
  check_dense(inputs, operation);
}

}  // namespace

UnisonoBackend::UnisonoBackend(CommPointer comm, int rank, int size, milliseconds timeout,
                               std::string name, GlobalRanks global_ranks)
    : Backend(rank, size),
      name_(std::move(name)),
      comm_(std::move(comm)),
      global_ranks_(std::make_shared<const GlobalRanks>(std::move(global_ranks))),
      timeout_(clamped(timeout)) {
  init();
}

unisono_comm* UnisonoBackend::comm_under_lock() const {
  TORCH_CHECK(comm_ != nullptr, "unisono: the process group takes no calls: ", why_no_comm_);
  return comm_.get();
}

CommPointer UnisonoBackend::comm() {
  const std::lock_guard lock(comm_mutex_);
  comm_under_lock();
  return comm_;
}

CommPointer UnisonoBackend::comm_or_null() {
  const std::lock_guard lock(comm_mutex_);
  return comm_;
}

std::shared_ptr<const GlobalRanks> UnisonoBackend::global_ranks() {
  const std::lock_guard lock(comm_mutex_);
  return global_ranks_;
}

WorkPointer UnisonoBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Started started(this, "broadcast");
  check_single(tensors, "broadcast");
  check_root(options.rootRank, getSize(), "broadcast");
  begin(started, OpType::BROADCAST, tensors, tensors, options.timeout);
  void* const data = started.write(tensors[0], true);
  unisono_call call = move_of(UNISONO_BROADCAST, tensors[0], data, data);
  call.root = static_cast<int32_t>(options.rootRank);
  return start_and_give(started, call);
}

unisono_call UnisonoBackend::all_reduce_of(Started& started, at::Tensor& tensor,
                                           const c10d::ReduceOp& op) {
  unisono_call call = started.reduction(UNISONO_ALL_REDUCE, tensor, op);
  call.out = started.write(tensor, true);
  call.in = call.out;
  call.count = static_cast<size_t>(tensor.numel());
  return call;
}

WorkPointer UnisonoBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  Started started(this, "all_reduce");
  check_single(tensors, "all_reduce");
  begin(started, OpType::ALLREDUCE, tensors, tensors, options.timeout);
  return start_and_give(started, all_reduce_of(started, tensors[0], options.reduceOp));
}

WorkPointer UnisonoBackend::allreduce_coalesced(Tensors& tensors,
                                                const c10d::AllreduceCoalescedOptions& options) {
  Started started(this, "all_reduce");
  check_dense(tensors, "all_reduce");
  begin(started, OpType::ALLREDUCE_COALESCED, tensors, tensors, options.timeout);
  std::vector<unisono_call> calls;
  for (at::Tensor& tensor : tensors) {
    calls.push_back(all_reduce_of(started, tensor, options.reduceOp));
  }
  return start_and_give(started, calls);
}

WorkPointer UnisonoBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Started started(this, "reduce");
  check_single(tensors, "reduce");
  check_root(options.rootRank, getSize(), "reduce");
  at::Tensor& tensor = tensors[0];
  begin(started, OpType::REDUCE, tensors, tensors, options.timeout);
  unisono_call call = started.reduction(UNISONO_REDUCE, tensor, options.reduceOp);
  call.root = static_cast<int32_t>(options.rootRank);
  call.count = static_cast<size_t>(tensor.numel());
  if (getRank() == options.rootRank) {
    call.out = started.write(tensor, true);
    call.in = call.out;
  } else {
    call.in = started.read(tensor);
  }
  return start_and_give(started, call);
}

unisono_call UnisonoBackend::all_gather_of(Started& started, at::Tensor& output,
                                           const at::Tensor& input) {
  check_alike(input, output, "all_gather");
  TORCH_CHECK(output.numel() == input.numel() * getSize(), "unisono: all_gather: the output has ",
              output.numel(), " elements, and ", getSize(), " inputs of ", input.numel(),
              " are to fit");
  const void* const in = started.read(input);
  void* const out = started.write(output, false);
  check_place({in, input.nbytes()}, {out, output.nbytes()}, own() * input.nbytes(), "all_gather");
  return move_of(UNISONO_ALL_GATHER, input, in, out);
}

WorkPointer UnisonoBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) {
  Started started(this, "all_gather");
  check_dense(input, "all_gather");
  begin(started, OpType::_ALLGATHER_BASE, {input}, {output}, options.timeout);
  return start_and_give(started, all_gather_of(started, output, input));
}

WorkPointer UnisonoBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  Started started(this, "all_gather");
  check_pairs(outputs, inputs, "all_gather");
  begin(started, OpType::COALESCED, inputs, outputs, options.timeout);
  std::vector<unisono_call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(all_gather_of(started, outputs[i], inputs[i]));
  }
  return start_and_give(started, calls);
}

unisono_call UnisonoBackend::all_gather_list_of(Started& started, const Tensors& outputs,
                                                const at::Tensor& input) {
  TORCH_CHECK(static_cast<int>(outputs.size()) == getSize(),
              "unisono: all_gather: ", outputs.size(), " outputs for ", getSize(), " ranks");
  check_alike(input, outputs[0], "all_gather");
  TORCH_CHECK(outputs[own()].numel() == input.numel(), "unisono: all_gather: the input has ",
              input.numel(), " elements, and the output of its rank ", outputs[own()].numel());
  const void* const in = started.read(input);
  void* const out = started.write_all(outputs);
  size_t place = 0;
  for (size_t i = 0; i < own(); ++i) place += outputs[i].nbytes();
  check_place({in, input.nbytes()}, {out, started.lent->copies.back().from.nbytes()}, place,
              "all_gather");
  unisono_call call = move_of(UNISONO_ALL_GATHER, input, in, out);
  if (!have_equal_sizes(outputs)) {
    call.collective = UNISONO_ALL_GATHER_V;
    call.count = 0;
    call.out_counts = started.keep(units_of(outputs));
  }
  return call;
}

WorkPointer UnisonoBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) {
  Started started(this, "all_gather");
  check_single(inputs, "all_gather");
  TORCH_CHECK(outputs.size() == 1, "unisono: all_gather: takes one list of outputs, not ",
              outputs.size());
  begin(started, OpType::ALLGATHER, inputs, outputs[0], options.timeout);
  return start_and_give(started, all_gather_list_of(started, outputs[0], inputs[0]));
}

WorkPointer UnisonoBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) {
  Started started(this, "all_gather");
  // By rank and then by input.
  TORCH_CHECK(static_cast<int>(outputs.size()) == getSize(),
              "unisono: all_gather: ", outputs.size(), " lists of outputs for ", getSize(),
              " ranks");
  Tensors all;
  for (const Tensors& of_rank : outputs) {
    TORCH_CHECK(of_rank.size() == inputs.size(), "unisono: all_gather: ", of_rank.size(),
                " outputs of a rank for ", inputs.size(), " inputs");
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  check_dense(inputs, "all_gather");
  begin(started, OpType::ALLGATHER_COALESCED, inputs, all, options.timeout);
  std::vector<unisono_call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_input;
    for (const Tensors& of_rank : outputs) of_input.push_back(of_rank[i]);
    calls.push_back(all_gather_list_of(started, of_input, inputs[i]));
  }
  return start_and_give(started, calls);
}

WorkPointer UnisonoBackend::gather(TensorLists& outputs, Tensors& inputs,
                                   const c10d::GatherOptions& options) {
  Started started(this, "gather");
  check_single(inputs, "gather");
  check_root(options.rootRank, getSize(), "gather");
  const bool is_root = getRank() == options.rootRank;
  check_root_list(outputs, is_root, getSize(), "gather", "outputs");
  begin(started, OpType::GATHER, inputs, is_root ? outputs[0] : Tensors(), options.timeout);
  unisono_call call = move_of(UNISONO_GATHER_V, inputs[0], started.read(inputs[0]), nullptr);
  call.root = static_cast<int32_t>(options.rootRank);
  if (is_root) {
    check_alike(inputs[0], outputs[0][0], "gather");
    call.out = started.write_all(outputs[0]);
    call.out_counts = started.keep(units_of(outputs[0]));
  }
  return start_and_give(started, call);
}

WorkPointer UnisonoBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                    const c10d::ScatterOptions& options) {
  Started started(this, "scatter");
  check_single(outputs, "scatter");
  check_root(options.rootRank, getSize(), "scatter");
  const bool is_root = getRank() == options.rootRank;
  check_root_list(inputs, is_root, getSize(), "scatter", "inputs");
  begin(started, OpType::SCATTER, is_root ? inputs[0] : Tensors(), outputs, options.timeout);
  unisono_call call =
      move_of(UNISONO_SCATTER_V, outputs[0], nullptr, started.write(outputs[0], false));
  call.root = static_cast<int32_t>(options.rootRank);
  if (is_root) {
    check_alike(outputs[0], inputs[0][0], "scatter");
    call.in = started.read_all(inputs[0]);
    call.in_counts = started.keep(units_of(inputs[0]));
  }
  return start_and_give(started, call);
}

unisono_call UnisonoBackend::reduce_scatter_of(Started& started, at::Tensor& output,
                                               const at::Tensor& input, const c10d::ReduceOp& op) {
  check_alike(output, input, "reduce_scatter");
  TORCH_CHECK(input.numel() == output.numel() * getSize(),
              "unisono: reduce_scatter: the input has ", input.numel(), " elements, which are not ",
              getSize(), " outputs of ", output.numel());
  unisono_call call = started.reduction(UNISONO_REDUCE_SCATTER, input, op);
  call.in = started.read(input);
  call.out = started.write(output, false);
  call.count = static_cast<size_t>(output.numel());
  check_place({call.out, output.nbytes()}, {call.in, input.nbytes()}, own() * output.nbytes(),
              "reduce_scatter");
  return call;
}

WorkPointer UnisonoBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) {
  Started started(this, "reduce_scatter");
  check_dense(input, "reduce_scatter");
  begin(started, OpType::_REDUCE_SCATTER_BASE, {input}, {output}, options.timeout);
  return start_and_give(started, reduce_scatter_of(started, output, input, options.reduceOp));
}

WorkPointer UnisonoBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  Started started(this, "reduce_scatter");
  check_pairs(outputs, inputs, "reduce_scatter");
  begin(started, OpType::COALESCED, inputs, outputs, options.timeout);
  std::vector<unisono_call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(reduce_scatter_of(started, outputs[i], inputs[i], options.reduceOp));
  }
  return start_and_give(started, calls);
}

WorkPointer UnisonoBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                           const c10d::ReduceScatterOptions& options) {
  Started started(this, "reduce_scatter");
  check_single(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
              "unisono: reduce_scatter: one list of as many inputs as ranks (", getSize(),
              ") is needed");
  at::Tensor& output = outputs[0];
  check_alike(output, inputs[0][0], "reduce_scatter");
  TORCH_CHECK(inputs[0][own()].numel() == output.numel(),
              "unisono: reduce_scatter: the output has ", output.numel(),
              " elements, and the input of its rank ", inputs[0][own()].numel());
  begin(started, OpType::REDUCE_SCATTER, inputs[0], outputs, options.timeout);
  unisono_call call = started.reduction(UNISONO_REDUCE_SCATTER_V, output, options.reduceOp);
  call.in = started.read_all(inputs[0]);
  call.out = started.write(output, false);
  std::vector<size_t> counts;
  for (const at::Tensor& input : inputs[0]) counts.push_back(static_cast<size_t>(input.numel()));
  call.in_counts = started.keep(std::move(counts));
  return start_and_give(started, call);
}

WorkPointer UnisonoBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                          std::vector<int64_t>& out_splits,
                                          std::vector<int64_t>& in_splits,
                                          const c10d::AllToAllOptions& options) {
  Started started(this, "all_to_all");
  check_dense(input, "all_to_all");
  check_alike(input, output, "all_to_all");
  const bool has_splits = !in_splits.empty() || !out_splits.empty();
  TORCH_CHECK(has_splits || input.numel() == output.numel(), "unisono: all_to_all: the input has ",
              input.numel(), " elements and the output ", output.numel(),
              "; make them equally many, or give split sizes");
  begin(started, OpType::ALLTOALL_BASE, {input}, {output}, options.timeout);
  const std::vector<size_t> in_units = split_units(input, in_splits, getSize(), "input");
  const std::vector<size_t> out_units = split_units(output, out_splits, getSize(), "output");
  const void* const in = started.read(input);
  void* const out = started.write(output, false);
  unisono_call call = move_of(UNISONO_ALL_TO_ALL, input, in, out);
  call.count = in_units.front();
  if (has_splits) {
    call.collective = UNISONO_ALL_TO_ALL_V;
    call.count = 0;
    call.in_counts = started.keep(in_units);
    call.out_counts = started.keep(out_units);
  }
  return start_and_give(started, call);
}

WorkPointer UnisonoBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                     const c10d::AllToAllOptions& options) {
  Started started(this, "all_to_all");
  TORCH_CHECK(
      static_cast<int>(inputs.size()) == getSize() && static_cast<int>(outputs.size()) == getSize(),
      "unisono: all_to_all: as many inputs and outputs as ranks (", getSize(), ") are needed");
  check_alike(inputs[0], outputs[0], "all_to_all");
  begin(started, OpType::ALLTOALL, inputs, outputs, options.timeout);
  unisono_call call = move_of(UNISONO_ALL_TO_ALL_V, inputs[0], started.read_all(inputs),
                              started.write_all(outputs));
  call.count = 0;
  call.in_counts = started.keep(units_of(inputs));
  call.out_counts = started.keep(units_of(outputs));
  return start_and_give(started, call);
}

WorkPointer UnisonoBackend::message(const char* name, OpType type, Tensors& tensors, int peer,
                                    int tag) {
  Started started(this, name);
  const bool is_send = type == OpType::SEND;
  check_single(tensors, name);
  // Those below are of monitored barriers.
  TORCH_CHECK(tag >= 0, "unisono: ", name, ": the tag is ", tag, ", accepted are those from 0 on");
  begin(started, type, tensors, is_send ? Tensors() : tensors, milliseconds(0));
  // What a shorter message does not fill stays as it was.
  unisono_call call = move_of(is_send ? UNISONO_SEND : UNISONO_RECEIVE, tensors[0],
                              is_send ? started.read(tensors[0]) : nullptr,
                              is_send ? nullptr : started.write(tensors[0], true));
  call.peer = peer;
  call.tag = static_cast<uint32_t>(tag);
  return start_and_give(started, call);
}

WorkPointer UnisonoBackend::send(Tensors& tensors, int target, int tag) {
  return message("send", OpType::SEND, tensors, target, tag);
}

WorkPointer UnisonoBackend::recv(Tensors& tensors, int source, int tag) {
  return message("recv", OpType::RECV, tensors, source, tag);
}

WorkPointer UnisonoBackend::recvAnysource(Tensors& tensors, int tag) {
  return message("recvAnySource", OpType::RECVANYSOURCE, tensors, UNISONO_ANY_RANK, tag);
}

WorkPointer UnisonoBackend::barrier(const c10d::BarrierOptions& options) {
  Started started(this, "barrier");
  begin(started, OpType::BARRIER, {}, {}, options.timeout);
  return start_and_give(started, call_of(UNISONO_BARRIER));
}

void UnisonoBackend::abort() {
  const CommPointer comm = comm_or_null();
  if (comm) check(unisono_comm_abort(comm.get(), "abort() of the process group"), "abort");
}

void UnisonoBackend::shutdown() {
  const CommPointer comm = comm_or_null();
  if (comm) unisono_comm_close(comm.get());
  meeting_place_.renew(false);
}

at::Tensor UnisonoBackend::allocateTensor(long elements, at::TensorOptions options) {
  TORCH_CHECK(options.device().is_cpu(),
              "unisono: allocateTensor: memory that ranks share is on "
              "the cpu, not on ",
              options.device());
  size_t bytes = 0;
  const bool is_sum = elements >= 0 && !__builtin_mul_overflow(static_cast<size_t>(elements),
                                                               options.dtype().itemsize(), &bytes);
  TORCH_CHECK_VALUE(is_sum && bytes <= static_cast<size_t>(std::numeric_limits<int64_t>::max()),
                    "unisono: allocateTensor: ", elements, " elements of ",
                    options.dtype().itemsize(), " bytes are no size of memory");
  unisono_memory* made = nullptr;
  check(unisono_memory_allocate(comm().get(), bytes, &made), "allocateTensor");
  // Shared, because a function that torch keeps can be copied.
  const std::shared_ptr<unisono_memory> memory(made, unisono_memory_free);
  return at::from_blob(
      unisono_memory_data(made), {elements}, [memory](void*) {}, options);
}

}  // namespace unisono_torch
