// The strategies behind one face: what the training loop asks of each of them.
//
// Threads: one thread at a time, the one that uses the communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/train/options.h"
#include "unisono/communicator.h"
#include "unisono/train/checkpoint.h"
#include "unisono/train/data.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {

/// What training has cost one device so far: a rank, or a thread of this process.
struct DeviceCost {
  int device = 0;
  std::size_t peak_memory = 0;
  TrafficReport traffic;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// One step on this rank's passes; the mean loss over all ranks. Collective. `step` counts from
  /// the beginning of the training, also of a resumed one.
  virtual double step(std::span<const Batch> passes, float rate, std::uint64_t step) = 0;
  /// Outputs of the model, not for training.
  virtual Tensor predict(const Tensor& inputs) = 0;
  virtual Model& model() = 0;
  /// Collective: the optimizer's whole state, in rank 0's `checkpoint`. Of ddp in all ranks',
  /// without communication.
  virtual void take_optimizer(Checkpoint* checkpoint) {
    train::take_optimizer(optimizer(), checkpoint);
  }
  virtual void restore_optimizer(const Checkpoint& checkpoint) {
    train::restore_optimizer(checkpoint, &optimizer(), 0, model().parameters().values().size());
  }
  /// This rank cannot go on, because of itself or of `failed_rank`: ends the calls in which others
  /// wait for it.
  virtual void abort(const std::string& /*reason*/, Rank /*failed_rank*/) {}
  /// One entry for each device of this process; `peak_memory` is the calling
  /// thread's, for those that have no devices of their own.
  virtual std::vector<DeviceCost> costs(std::size_t peak_memory) = 0;

 protected:
  virtual Optimizer& optimizer() = 0;
};

/// Collective. `communicator` is the strategy's alone and outlives it.
std::unique_ptr<Strategy> make_strategy(const Options& options, std::unique_ptr<Model> model,
                                        Communicator& communicator);

/// One rank of several: ddp, zero1, or the mode of equal bits.
std::unique_ptr<Strategy> make_rank_strategy(const Options& options, std::unique_ptr<Model> model,
                                             Communicator& communicator);

OptimizerFactory optimizer_of(const Options& options);

}  // namespace unisono::train
