// A model and its replicas on the devices of one process, and what moves between them in a step:
// replicate, scatter, apply, gather, send gradients back, backward, reduce.
//
// Owned by a DataParallel. Threads: one thread at a time. Each function is one or more phases of
// the DeviceGroup; memory is taken in phases without communication, so that a device without room
// fails alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "train/dp/device_group.h"
#include "train/dp/pieces.h"
#include "train/dp/step_inputs.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {

/// [device][output].
using DeviceTensors = std::vector<std::vector<Tensor>>;

class Replicas {
 public:
  /// `gpus` as in DataParallelOptions.
  Replicas(std::unique_ptr<Model> model, const std::vector<int>& devices, bool threads_per_apply,
           const std::vector<int>& gpus);

  DeviceGroup& group() { return group_; }
  Model& first() { return *models_[0]; }
  const Model& first() const { return *models_[0]; }

  /// The first device's parameters, and its buffers, to the first `devices`.
  void replicate(std::size_t devices, bool with_buffers);
  /// chunks[i] indices along `dim` of each input to device i, from the caller's memory or by way
  /// of the first device's.
  std::vector<NamedTensors> scatter(const InputView& inputs, std::size_t dim,
                                    std::span<const std::size_t> chunks, bool by_first_device);
  /// Forward passes of the devices that have samples. `pass` is the first device's; micro_batch
  /// counts on from it.
  DeviceTensors apply(std::vector<NamedTensors> inputs, std::span<const std::size_t> chunks,
                      const Pass& pass);
  /// One tensor per output, in the memory of device `root`.
  std::vector<Tensor> gather(const DeviceTensors& outputs, std::size_t dim, std::size_t root);
  /// The same without a device: copied to the caller's memory.
  std::vector<Tensor> copy_out(const DeviceTensors& outputs, std::size_t dim);
  /// Gradients of gathered outputs, at device `root`, to the devices whose outputs they were.
  DeviceTensors send_back(const std::vector<Tensor>& gradients, const std::vector<Pieces>& outputs,
                          std::size_t devices, std::size_t root);
  /// Backward passes of the devices that have samples.
  void backward(const DeviceTensors& gradients, std::span<const std::size_t> chunks);
  /// The sum of the first `devices`' gradients to the first device's, which held what earlier
  /// passes had added.
  void reduce(std::size_t devices);

 private:
  std::vector<Pieces> cut(const InputView& inputs, std::size_t dim,
                          std::span<const std::size_t> chunks) const;

  DeviceGroup group_;
  std::vector<std::unique_ptr<Model>> models_;
  std::vector<Pass> passes_;
};

/// How the outputs of the devices fit together, one for each output.
std::vector<Pieces> join_outputs(const DeviceTensors& outputs, std::size_t dim);

}  // namespace unisono::train
