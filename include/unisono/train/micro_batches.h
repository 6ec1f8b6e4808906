// Training whose every bit is the same on any number of ranks.
//
// A step is M micro-batches, whatever the number of ranks: rank r computes the r-th contiguous
// block of them (GlobalMicroBatchSampler deals them out). Each micro-batch is a pass of its own,
// and the gradients are summed by the pairwise tree over the micro-batches 0 .. M-1:
//
//        T(0,8)                    T(lo, hi) splits at lo + the largest power of two
//       /      \                   below hi - lo. With 4 ranks T(0,2), T(2,4), T(4,6)
//    T(0,4)    T(4,8)              and T(6,8) are computed on ranks 0 to 3, and the
//    /   \     /    \              rest by an all-reduce in Order::kCanonical, which
//  T(0,2) ...       T(6,8)         is the same tree over ranks.
//  /  \              /  \          .
// 0    1            6    7
//
// The trees nest when a rank's block is a power of two or there is one rank. A job whose order is
// exact (UNISONO_ORDER, InitOptions::order) has no tree over ranks: it trains so on one or two,
// whose sums are the same, and is refused on more. Batch norms take their statistics per
// micro-batch, each starting from the same running statistics; afterwards these become the mean of
// what the micro-batches made of them, summed in micro-batch order. Random numbers depend on (seed,
// step, micro-batch).
//
// Threads: one thread at a time, the one that uses the communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "unisono/communicator.h"
#include "unisono/train/data.h"
#include "unisono/train/loss.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {

class MicroBatchTrainer {
 public:
  /// Collective: checks and broadcasts the model as DistributedDataParallel does.
  /// std::invalid_argument when the ranks do not divide `micro_batches` into equal blocks of a
  /// power of two. Error with kInvalidArgument on all of more than two ranks of an exact job.
  MicroBatchTrainer(Model& model, Communicator& communicator, std::size_t micro_batches = 8);
  ~MicroBatchTrainer();
  MicroBatchTrainer(const MicroBatchTrainer&) = delete;
  MicroBatchTrainer& operator=(const MicroBatchTrainer&) = delete;

  /// This rank's micro-batches of a step: first() to first() + count() - 1.
  std::size_t first() const;
  std::size_t count() const;

  /// A whole training step on this rank's micro-batches, in their order; the mean of all
  /// micro-batches' losses. pass.seed and pass.step are the caller's, pass.micro_batch is set here.
  double step(std::span<const Batch> mine, const LossFunction& loss, Optimizer& optimizer,
              float learning_rate, Pass pass = {});

  Model& model();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::train
