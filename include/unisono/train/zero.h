// ZeroOptimizer: data parallelism with the optimizer's state sharded over the ranks (ZeRO, stage 1;
// Rajbhandari et al., 2020).
//
// The flat arena of parameters is cut into N equal slices (the last ones may be shorter or empty).
// Each step reduce-scatters the gradients, updates the rank's own slice with the rank's own part of
// the optimizer's state, and all-gathers the parameters: the bytes of one all-reduce, 1/N of the
// state. With Order::kCanonical the result equals DistributedDataParallel's with the same order
// bit by bit.
//
// Threads: one thread at a time, the one that uses the communicator.
#pragma once

#include <cstddef>
#include <memory>

#include "unisono/communicator.h"
#include "unisono/train/checkpoint.h"
#include "unisono/train/data.h"
#include "unisono/train/loss.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {

struct ZeroOptions {
  /// Rank 0's buffers go to all at the start of every training step().
  bool broadcast_buffers = true;
  /// Of the reduce-scatter. An algorithm's name must outlive this.
  CallOptions reduction{};
  CallOptions gather{};  ///< of the all-gather
};

class ZeroOptimizer {
 public:
  /// Collective: checks and broadcasts the model as DistributedDataParallel does. `make_optimizer`
  /// is called for the count of this rank's slice, which may be 0.
  ZeroOptimizer(Model& model, Communicator& communicator, const OptimizerFactory& make_optimizer,
                ZeroOptions options = {});
  ~ZeroOptimizer();
  ZeroOptimizer(const ZeroOptimizer&) = delete;
  ZeroOptimizer& operator=(const ZeroOptimizer&) = delete;

  /// A whole training step on this rank's batch; the mean of all ranks' losses.
  double step(const Batch& batch, const LossFunction& loss, float learning_rate, Pass pass = {});

  /// The part of step() that communicates: averages what all ranks have in gradients(), moves the
  /// parameters. gradients() keeps this rank's own values.
  void update(float learning_rate);
  /// Rank 0's buffers to all.
  void broadcast_buffers();

  /// This rank's slice of the arenas, and the optimizer of it.
  std::size_t first() const;
  std::size_t count() const;
  Optimizer& optimizer();

  /// Collective: the optimizer's name, steps and whole state into rank 0's `checkpoint`; the
  /// others' may be null. It is read back by restore_optimizer(checkpoint, &optimizer(), first(),
  /// count()).
  void gather_optimizer(Checkpoint* checkpoint);

  Model& model();
  /// The one that buffers and losses go over, apart from the given one's gradients and parameters.
  Communicator& control();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::train
