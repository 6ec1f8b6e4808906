// The process group: c10d::Backend over one communicator of the C API.
//
// The methods have the names that torch 2.4 knows; newer versions call them by newer names too.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "csrc/reconfigure.h"
#include "csrc/timeouts.h"
#include "csrc/work.h"
#include "unisono/unisono.h"

namespace unisono_torch {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

/// One communicator, ended with the last who has it.
using CommPointer = std::shared_ptr<unisono_comm>;

/// Meets the other ranks of the group in torch's store. Throws what is missing.
CommPointer join(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout,
                 const GlobalRanks& global_ranks = {});
/// Meets those who were given the same id. Throws in the name of `operation`.
CommPointer join_by_id(const unisono_unique_id& id, int rank, int size,
                       std::chrono::milliseconds timeout, const char* operation);

class UnisonoBackend : public c10d::Backend {
 public:
  /// `name` is what the backend calls itself.
  /// Without `comm` the group takes no calls until reconfigure() has brought one.
  UnisonoBackend(CommPointer comm, int rank, int size, std::chrono::milliseconds timeout,
                 std::string name, GlobalRanks global_ranks);

  const std::string getBackendName() const override { return name_; }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& out_splits,
                            std::vector<int64_t>& in_splits,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;
  WorkPointer send(Tensors& tensors, int target, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // These are newer than the oldest version of torch: no `override`.
  bool supportsCoalescing() const { return true; }
  void startCoalescing() override;
  WorkPointer endCoalescing() override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = clamped(timeout); }
  void abort();
  void shutdown();
  /// CPUs have no index.
  bool supportsTensorAlloc(c10::DeviceIndex index) { return index < 0; }
  /// A CPU tensor in memory that the other ranks of the host read in place.
  at::Tensor allocateTensor(long elements, at::TensorOptions options = {});
  bool isInitialized() { return comm_or_null() != nullptr; }

  bool supportsSplitting() const { return true; }
  c10::intrusive_ptr<Options> getBackendOptions();
  /// Collective over this group. Null on a rank that is not among `ranks`.
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options);
  /// Of ranks of several groups that share `store`.
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& options, const int& rank,
                                    const int& size);

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override {
    return meeting_place_.handle(rank_);
  }
  WorkPointer reconfigure(const c10d::ReconfigureOptions& options) override;
#endif

 private:
  struct Started;
  // The first line of every call: one that does not begin ends the coalescing of calls, which torch
  // does only where all have begun. Nobody waits any more for those that were begun before.
  struct Refusal {
    void operator()(UnisonoBackend* backend) const;
  };
  using Unfinished = std::unique_ptr<UnisonoBackend, Refusal>;

  void begin(Started& started, c10d::OpType type, Tensors inputs, Tensors outputs,
             std::chrono::milliseconds timeout);
  void start(Started& started, const unisono_call& call);
  void number(Started& started);
  WorkPointer give(Started&& started);
  WorkPointer start_and_give(Started& started, at::ArrayRef<unisono_call> calls);
  c10::Stream stream_on(const c10::Device& device, bool is_default);
  WorkPointer give_ended(const char* name, c10d::OpType type, const Tensors& tensors);
  WorkPointer message(const char* name, c10d::OpType type, Tensors& tensors, int peer, int tag);
  // The checked call, its buffers lent.
  unisono_call all_reduce_of(Started& started, at::Tensor& tensor, const c10d::ReduceOp& op);
  unisono_call all_gather_of(Started& started, at::Tensor& output, const at::Tensor& input);
  unisono_call all_gather_list_of(Started& started, const Tensors& outputs,
                                  const at::Tensor& input);
  at::Tensor gather_rows(const at::Tensor& own, const std::vector<int64_t>& counts,
                         std::chrono::milliseconds timeout);
  unisono_call reduce_scatter_of(Started& started, at::Tensor& output, const at::Tensor& input,
                                 const c10d::ReduceOp& op);

  bool pass_token(unisono_collective collective, int peer, std::chrono::milliseconds limit,
                  const GlobalRanks& in_world);
  void await_ranks(std::chrono::milliseconds timeout, bool wait_all_ranks,
                   const GlobalRanks& in_world);

  template <typename Make>
  c10::intrusive_ptr<Backend> once(const c10::intrusive_ptr<c10d::Store>& store,
                                   const std::vector<int>& ranks, const Make& make);
  c10::intrusive_ptr<Backend> part_of(const std::vector<int>& ranks, const Options& options);
  size_t own() const { return static_cast<size_t>(getRank()); }
  CommPointer comm();
  CommPointer comm_or_null();
  std::shared_ptr<const GlobalRanks> global_ranks();
  unisono_comm* comm_under_lock() const;
  void replace_comm(CommPointer comm, std::string why_none);

  const std::string name_;
  std::mutex mutex_;  // one thread at a time starts calls
  // abort() takes this one alone: a split holds the other until all ranks have come.
  std::mutex comm_mutex_;
  CommPointer comm_;  // read under either mutex, changed under both, as the next two
  std::shared_ptr<const GlobalRanks> global_ranks_;
  std::string why_no_comm_ = "it has no members before its first reconfigure()";
  // The group that was made of this one last, and the store and ranks that were given for it.
  std::optional<c10::weak_intrusive_ptr<c10d::Store>> child_store_;
  std::vector<int> child_ranks_;
  std::optional<c10::weak_intrusive_ptr<Backend>> child_;
  mutable MeetingPlace meeting_place_;
  std::set<int64_t> used_uuids_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<uint64_t> sequence_{0};
  uint32_t monitored_barriers_ = 0;
  std::map<c10::DeviceIndex, c10::Stream> streams_;  // under mutex_
  bool is_coalescing_ = false;                       // under mutex_, as what it collects
  std::vector<WorkPointer> coalesced_;
};

}  // namespace unisono_torch
