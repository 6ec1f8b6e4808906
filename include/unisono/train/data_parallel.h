// Data parallelism inside one process: devices are threads, each with a replica of the model.
//
// Every step the first device's parameters and buffers are broadcast to the replicas, the batch is
// scattered, the replicas run in parallel, and their gradients are summed onto the first device,
// which updates. Where the loss is computed makes three strategies of one class:
//
//   dp            outputs are gathered on the output device, the loss is computed there, and its
//                 gradient goes back to the replicas
//   dp-balanced   the same with `first_batch`: the first device, which holds more, computes less
//   dp-criterion  `parallel_loss`: outputs stay where they are, targets are scattered, and only
//                 scalars are reduced
//
// Everything between devices is a collective of unisono, each pinned to the plan that moves every
// byte once, so report() counts what a step costs. State that replicas but the first change in
// their buffers (running statistics) is lost, as it is wherever models are replicated each step.
//
// Threads: one thread at a time uses a DataParallel. Exceptions: a failure inside a replica is a
// ReplicaError; what the caller gave wrongly is std::invalid_argument; communication throws Error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "unisono/traffic.h"
#include "unisono/train/data.h"
#include "unisono/train/loss.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"
#include "unisono/train/tensor.h"

namespace unisono::train {

using NamedTensors = std::map<std::string, Tensor>;

/// A model whose inputs have names, all with the batch along the same dimension, and which may have
/// several outputs. forward() and backward() of one tensor throw std::invalid_argument.
class NamedModel : public Model {
 public:
  virtual std::vector<Tensor> forward_named(const NamedTensors& inputs, Pass& pass) = 0;
  /// One gradient for each output. Once per forward_named().
  virtual void backward_named(std::span<const Tensor> output_gradients, Pass& pass) = 0;

  Tensor forward(const Tensor& inputs, Pass& pass) final;
  void backward(const Tensor& output_gradient, Pass& pass) final;
};

/// Carries the failure of a replica (std::rethrow_if_nested): "replica 1 on device 1: ...". With
/// several, the first replica's.
class ReplicaError : public std::runtime_error {
 public:
  ReplicaError(std::size_t replica, int device, const std::string& what);
  std::size_t replica() const { return replica_; }
  int device() const { return device_; }

 private:
  std::size_t replica_;
  int device_;
};

/// What a loss over several outputs is given.
struct LossCall {
  std::span<const Tensor> outputs;
  std::span<const std::int32_t> targets;
  std::span<const std::size_t> chunks;  ///< samples of each piece in the outputs
  float scale = 1.0F;                   ///< of the gradients
  std::span<Tensor> gradients;          ///< one per output to fill; empty: not wanted
};
using OutputsLoss = std::function<double(const LossCall& call)>;

/// For models with the loss inside: their only output is one loss per device, and this is the mean
/// of these. Weighted by the devices' chunks it is the loss of the whole batch; unweighted (as
/// usually written) only where the chunks are equal.
OutputsLoss mean_of_losses(bool weighted);

struct DataParallelOptions {
  /// Names of the devices. None or one: the plain model, in the calling thread.
  std::vector<int> devices{};
  /// The GPU of each of `devices`, repeated where there are fewer; counts what CUDA_VISIBLE_DEVICES
  /// leaves. Empty: all devices compute on the host. Models as clone_to() takes them.
  std::vector<int> gpus{};
  /// One of `devices`; the first where none is given. Holds gathered outputs, loss and gradient.
  std::optional<int> output_device{};
  /// The dimension of inputs and outputs that the batch runs along.
  std::size_t dim = 0;
  /// dp-balanced: samples of the first device in each pass; see balanced_chunks().
  std::optional<std::size_t> first_batch{};
  /// dp-criterion: the loss is computed where the outputs are ...
  bool parallel_loss = false;
  /// ... and is the devices' mean weighted by samples; false: unweighted, as published.
  bool weighted_loss = true;
  /// Inputs are moved to the first device before they are scattered; false: they are scattered from
  /// the memory where the caller has them.
  bool inputs_on_first_device = false;
  /// The first device's buffers go to the replicas in each step, as its parameters do; false: each
  /// replica keeps its own.
  bool broadcast_buffers = true;
  /// A thread is started for each replica's forward pass (and parallel loss) and ends with it;
  /// false: the devices' own threads run it.
  bool threads_per_step = true;
  /// Of a model with one output; empty: cross_entropy().
  LossFunction loss{};
  /// Of a model with several outputs or the loss inside; instead of `loss`.
  OutputsLoss outputs_loss{};
  /// Of the passes' random numbers: each training pass of a step draws its own, evaluations none.
  std::uint64_t seed = 0;
};

/// Outputs where the replicas left them: [device][output]; a device without samples has none.
struct Predictions {
  std::vector<std::vector<Tensor>> devices;
  std::vector<std::size_t> chunks;  ///< samples per device
};
/// [output][device with samples]: one list per output of the model.
std::vector<std::vector<Tensor>> unzip(Predictions predictions);

/// Of one device since the current step began.
struct DeviceReport {
  int device = 0;
  std::size_t samples = 0;  ///< of the last pass
  std::size_t peak_memory = 0, memory = 0;
  TrafficReport traffic;  ///< peers are numbered as `devices` of the options are ordered
};
struct StepReport {
  double loss = 0;
  std::size_t samples = 0;
  std::size_t threads_started = 0;
  std::vector<DeviceReport> devices;
};

class DataParallel {
 public:
  /// `optimizer` makes one for all parameters, on the first device.
  DataParallel(std::unique_ptr<Model> model, const OptimizerFactory& optimizer,
               DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// backward() and update(): the batch's loss.
  double step(const Batch& batch, float learning_rate);
  /// Adds the gradient of the batch's loss, times `scale`, to the first device's gradients; several
  /// before an update() accumulate. An empty batch or no input is std::invalid_argument; whatever
  /// fails later than that clears what had accumulated, for it may hold a part of this batch.
  double backward(const Batch& batch, float scale = 1.0F);
  double backward(const NamedTensors& inputs, std::span<const std::int32_t> targets,
                  float scale = 1.0F);
  /// One optimizer step on the first device, whose gradients are zero afterwards.
  void update(float learning_rate);

  /// The model's only output on the output device, not for training.
  Tensor forward(const Tensor& inputs);
  /// Replicates, scatters and applies; the outputs stay where they are.
  Predictions predict(const NamedTensors& inputs, bool training = false);
  /// The parallel loss of these outputs, without gradients.
  double criterion(const Predictions& predictions, std::span<const std::int32_t> targets);
  /// Each output in one tensor, on a device of `devices` or (nullopt) in the caller's memory: for a
  /// loss that is not parallel.
  std::vector<Tensor> gather(const Predictions& predictions, std::optional<int> device = {});
  /// Sends gradients of what gather() put together back to the replicas of the last predict(),
  /// which was for training, and adds what they cause, as backward() does: gradients of other
  /// shapes are std::invalid_argument, and whatever fails later clears what had accumulated.
  void propagate(const std::vector<Tensor>& output_gradients);

  /// The first device's: the one that lasts, to load and to save.
  Model& model();
  Optimizer& optimizer();
  std::size_t devices() const;
  /// Limit of a device's tensors in bytes; 0: none.
  void set_memory_limit(int device, std::size_t bytes);
  /// Since the first backward() or predict() after the last update(). Not part of the traffic.
  StepReport report();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::train
