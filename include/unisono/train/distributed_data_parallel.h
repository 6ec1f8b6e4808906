// DistributedDataParallel: one rank, one replica; gradients are averaged while the backward pass is
// still computing the next ones.
//
// Gradients are grouped into buckets. A bucket's all-reduce starts as soon as all its gradients are
// there, strictly in bucket order, so that every rank makes the same calls. Gradients are
// multiplied by 1/N on their way into the bucket and then summed.
//
// Gradients go over the communicator that is given; everything else (the first broadcast, buffers,
// the bitmap of used parameters, losses, who is out of data) over a duplicate of it, control(), so
// that the two can be counted apart.
//
// When this rank cannot go on (the model throws, a parameter gets no gradient), it aborts both
// communicators with the reason before it throws: the other ranks fail with these words instead of
// waiting.
//
// Threads: one thread at a time, the one that uses the communicator.
//
// A rank's program; link unisono::train, start it by `unisono run -n 4 -- ./program`:
//
//   Communicator world = init();
//   auto data = load(open_idx({}), &world, {});
//   DistributedSampler sampler(data->size(), {.ranks = world.size(), .rank = world.rank()});
//   Loader loader(*data, sampler, {.batch_samples = 32, .drop_last = true});
//   auto model = make_mlp({.widths = {784, 256, 10}});
//   auto optimizer = make_adamw(model->parameters().values().size());
//   DistributedDataParallel ddp(*model, world);
//   for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
//     loader.begin(epoch);
//     double loss = 0;
//     while (std::optional<Batch> batch = loader.next()) {
//       loss = ddp.step(*batch, cross_entropy, *optimizer, 0.001F);
//     }
//     if (world.rank() == 0) std::printf("epoch %lu: loss %.4f\n", epoch + 1, loss);
//   }
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/communicator.h"
#include "unisono/train/data.h"
#include "unisono/train/loss.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {

/// Root's buffers (running statistics) to all. Collective.
void broadcast_buffers(Model& model, Communicator& communicator, Rank root = 0);

/// What becomes of a full bucket instead of "times 1/N, then summed over the ranks".
class CommunicationHook {
 public:
  class Reduction {
   public:
    virtual ~Reduction() = default;
    /// True when finished. Never waits, never throws.
    virtual bool test() = 0;
    /// Waits; afterwards the bucket holds the result. Throws Error.
    virtual void finish() = 0;
  };

  virtual ~CommunicationHook() = default;
  /// Begins to reduce `bucket`, which is the hook's until finish(). It holds the gradients as they
  /// are: multiplying by `factor` (1/N) is the hook's work too. Of a model on a GPU the bucket is
  /// device memory, which is ready in options.stream and is to hold the result there.
  virtual std::unique_ptr<Reduction> start(std::span<float> bucket, float factor,
                                           Communicator& communicator,
                                           const CallOptions& options) = 0;
};

/// The average itself, in float32: what is done without a hook.
std::shared_ptr<CommunicationHook> make_average_hook();
/// Half the bytes: averaged in binary16 or bfloat16 (each sum computed in fp32 and rounded).
std::shared_ptr<CommunicationHook> make_fp16_hook();
std::shared_ptr<CommunicationHook> make_bf16_hook();

/// What a gradient is divided by once some ranks are out of data.
enum class JoinDivisor {
  kActiveRanks,   ///< the ranks that still have data: every sample counts the same
  kInitialRanks,  ///< all ranks: the gradients fade as ranks leave
};

struct DdpOptions {
  /// A bucket takes gradients until it holds at least so many bytes.
  std::size_t bucket_bytes_max = 25u << 20;
  /// The same, if less, for the one that starts first: small, so that communication begins early.
  /// The first step has one bucket for all gradients, unless find_unused_parameters asks each step.
  std::size_t first_bucket_bytes = 1u << 20;
  /// Off: all-reduces start after the backward pass. For comparison.
  bool overlap = true;
  /// Some passes do not use some parameters, perhaps others on each rank. Costs one small
  /// all-reduce per step. Without it such a pass is an error that names the parameters.
  bool find_unused_parameters = false;
  /// Every step uses the same parameters: what find_unused_parameters learns is learned once, and
  /// parameters that no rank uses are not communicated at all.
  bool static_graph = false;
  /// Rank 0's buffers go to all at the start of every synchronised forward().
  bool broadcast_buffers = true;
  /// Ranks may run out of data at different steps: every synchronised forward() tells who still has
  /// some, and every rank ends its epoch with join().
  bool uneven_inputs = false;
  JoinDivisor join_divisor = JoinDivisor::kActiveRanks;
  std::shared_ptr<CommunicationHook> hook{};
  /// Of the buckets' all-reduces: algorithm and order. The algorithm's name must outlive this.
  CallOptions reduction{};
};

class DistributedDataParallel {
 public:
  /// Collective. Compares names and shapes of all parameters and buffers over the ranks
  /// (std::invalid_argument on every rank, naming two ranks and the entry), then gives rank 0's
  /// values to all. Model and communicator must outlive this and are used through it meanwhile.
  DistributedDataParallel(Model& model, Communicator& communicator, DdpOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// A whole training step on this rank's batch, outside of no_sync(); the mean of all ranks'
  /// losses. Ranks count equally: where batches differ in size, use the parts below and scale the
  /// loss by N * local / global.
  double step(const Batch& batch, const LossFunction& loss, Optimizer& optimizer,
              float learning_rate, Pass pass = {});

  /// The parts of step(). A training forward() outside of no_sync() is followed by its backward(),
  /// which returns when model().gradients() holds the average over the ranks of what they had
  /// accumulated there. Evaluation (pass.training off) communicates nothing. Both set
  /// pass.gradient_ready and pass.used; a gradient_ready of the caller's is called too.
  Tensor forward(const Tensor& inputs, Pass& pass);
  void backward(const Tensor& output_gradient, Pass& pass);
  void zero_gradients();

  /// While it lives, passes whose forward() it covers communicate nothing: gradients accumulate,
  /// and the next synchronised backward() reduces the sum. With k passes per step divide the loss
  /// by k.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool previous_;
  };
  NoSync no_sync() { return NoSync(*this); }

  /// Needs uneven_inputs. This rank has no more data (and no accumulated gradients): takes part in
  /// the other ranks' steps with zeros until all are here. `update` is called after each of these
  /// steps, when gradients() holds the others' average: an optimizer step there keeps its state
  /// equal on all ranks. Where they call forward() and backward() apart, `update` also zeroes the
  /// gradients where their loop does. Finally parameters and buffers of a rank that had data to the
  /// end go to all. Returns the number of steps taken part in. May be called once per epoch.
  std::size_t join(const std::function<void()>& update = {});

  Model& model();
  Communicator& communicator();
  Communicator& control();
  const DdpOptions& options() const;

  /// Parameters by bucket, in the order in which they start.
  const std::vector<std::vector<int>>& buckets() const;
  /// The buckets have their final form: after the first step, or at once where they never change.
  bool buckets_are_final() const;

  /// Buckets of the present backward() so far. `finished` makes progress.
  struct Progress {
    std::size_t buckets = 0, started = 0, finished = 0;
  };
  Progress progress();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace unisono::train
