// The strategies of one process per rank: ddp, zero1, and the mode of equal bits.
#include <algorithm>
#include <optional>
#include <utility>

#include "tools/train/strategy.h"
#include "unisono/train/distributed_data_parallel.h"
#include "unisono/train/loss.h"
#include "unisono/train/micro_batches.h"
#include "unisono/train/schedule.h"
#include "unisono/train/sync_batch_norm.h"
#include "unisono/train/zero.h"

namespace unisono::train {
namespace {

std::shared_ptr<CommunicationHook> hook_of(Compression compression) {
  switch (compression) {
    case Compression::kNone:
      return nullptr;
    case Compression::kFp16:
      return make_fp16_hook();
    case Compression::kBf16:
      return make_bf16_hook();
  }
  return nullptr;
}

CallOptions reduction_of(const Options& options) {
  return {.order = options.canonical ? Order::kCanonical : Order::kAny};
}

// What one rank is, whichever way its gradients travel.
class RankStrategy : public Strategy {
 public:
  RankStrategy(const Options& options, std::unique_ptr<Model> model, Communicator& communicator)
      : model_(std::move(model)), communicator_(communicator), seed_(options.seed) {
    if (options.sync_bn) exchange_.emplace(communicator, reduction_of(options));
  }

  Tensor predict(const Tensor& inputs) override {
    Pass pass{.training = false};
    return model_->forward(inputs, pass);
  }
  Model& model() override { return *model_; }
  void abort(const std::string& reason, Rank failed_rank) override {
    communicator_.abort(reason, failed_rank);
    if (exchange_) exchange_->abort(reason, failed_rank);
  }

 protected:
  /// Random numbers differ between ranks and passes, and do not depend on the number of steps that
  /// this process has taken.
  Pass pass_of(std::uint64_t step, std::size_t index, std::size_t passes) {
    Pass pass{.seed = seed_, .step = step};
    pass.micro_batch = static_cast<std::uint64_t>(communicator_.rank()) * passes + index;
    if (exchange_) pass.statistics = &*exchange_;
    return pass;
  }
  DeviceCost cost(std::size_t peak_memory) {
    DeviceCost cost{.device = communicator_.rank(),
                    .peak_memory = peak_memory,
                    .traffic = communicator_.traffic()};
    if (exchange_) cost.traffic += exchange_->communicator().traffic();
    return cost;
  }

  std::unique_ptr<Model> model_;
  Communicator& communicator_;

 private:
  std::uint64_t seed_;
  std::optional<SyncBatchNormExchange> exchange_;
};

class Ddp : public RankStrategy {
 public:
  Ddp(const Options& options, std::unique_ptr<Model> model, Communicator& communicator)
      : RankStrategy(options, std::move(model), communicator),
        ddp_(*model_, communicator,
             {.bucket_bytes_max = options.bucket_bytes,
              .overlap = options.overlap,
              .find_unused_parameters = options.find_unused,
              .hook = hook_of(options.compression),
              .reduction = reduction_of(options)}),
        optimizer_(optimizer_of(options)(model_->parameters().values().size())) {}

  double step(std::span<const Batch> passes, float rate, std::uint64_t step) override {
    ddp_.zero_gradients();
    double loss = 0;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      // All passes but the last only accumulate.
      std::optional<DistributedDataParallel::NoSync> quiet;
      if (i + 1 < passes.size()) quiet.emplace(ddp_);
      Pass pass = pass_of(step, i, passes.size());
      const Tensor outputs = ddp_.forward(passes[i].inputs, pass);
      Tensor gradient;
      loss += cross_entropy(outputs, passes[i].targets, &gradient,
                            1.0F / static_cast<float>(passes.size()));
      ddp_.backward(gradient, pass);
    }
    train::step(*optimizer_, *model_, rate);
    return mean_loss(ddp_.control(), loss / static_cast<double>(passes.size()));
  }

  std::vector<DeviceCost> costs(std::size_t peak_memory) override {
    DeviceCost mine = cost(peak_memory);
    mine.traffic += ddp_.control().traffic();
    return {mine};
  }
  void abort(const std::string& reason, Rank failed_rank) override {
    RankStrategy::abort(reason, failed_rank);
    ddp_.control().abort(reason, failed_rank);
  }

 private:
  Optimizer& optimizer() override { return *optimizer_; }

  DistributedDataParallel ddp_;
  std::unique_ptr<Optimizer> optimizer_;
};

class Zero : public RankStrategy {
 public:
  Zero(const Options& options, std::unique_ptr<Model> model, Communicator& communicator)
      : RankStrategy(options, std::move(model), communicator),
        zero_(*model_, communicator, optimizer_of(options), {.reduction = reduction_of(options)}) {}

  double step(std::span<const Batch> passes, float rate, std::uint64_t step) override {
    model_->gradients().zero();
    zero_.broadcast_buffers();
    double loss = 0;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      Pass pass = pass_of(step, i, passes.size());
      const Tensor outputs = model_->forward(passes[i].inputs, pass);
      Tensor gradient;
      loss += cross_entropy(outputs, passes[i].targets, &gradient,
                            1.0F / static_cast<float>(passes.size()));
      model_->backward(gradient, pass);
    }
    zero_.update(rate);
    return mean_loss(zero_.control(), loss / static_cast<double>(passes.size()));
  }

  void take_optimizer(Checkpoint* checkpoint) override { zero_.gather_optimizer(checkpoint); }
  void restore_optimizer(const Checkpoint& checkpoint) override {
    train::restore_optimizer(checkpoint, &optimizer(), zero_.first(), zero_.count());
  }
  std::vector<DeviceCost> costs(std::size_t peak_memory) override {
    DeviceCost mine = cost(peak_memory);
    mine.traffic += zero_.control().traffic();
    return {mine};
  }
  void abort(const std::string& reason, Rank failed_rank) override {
    RankStrategy::abort(reason, failed_rank);
    zero_.control().abort(reason, failed_rank);
  }

 private:
  Optimizer& optimizer() override { return zero_.optimizer(); }

  ZeroOptimizer zero_;
};

class Bitwise : public RankStrategy {
 public:
  Bitwise(const Options& options, std::unique_ptr<Model> model, Communicator& communicator)
      : RankStrategy(options, std::move(model), communicator),
        trainer_(*model_, communicator, kMicroBatches),
        optimizer_(optimizer_of(options)(model_->parameters().values().size())) {}

  double step(std::span<const Batch> passes, float rate, std::uint64_t step) override {
    return trainer_.step(passes, cross_entropy, *optimizer_, rate, pass_of(step, 0, 1));
  }

  void take_optimizer(Checkpoint* checkpoint) override {
    if (communicator_.rank() == 0) Strategy::take_optimizer(checkpoint);
  }
  std::vector<DeviceCost> costs(std::size_t peak_memory) override { return {cost(peak_memory)}; }

 private:
  Optimizer& optimizer() override { return *optimizer_; }

  MicroBatchTrainer trainer_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

std::unique_ptr<Strategy> make_rank_strategy(const Options& options, std::unique_ptr<Model> model,
                                             Communicator& communicator) {
  if (options.strategy == StrategyKind::kZero1) {
    return std::make_unique<Zero>(options, std::move(model), communicator);
  }
  if (options.bitwise) return std::make_unique<Bitwise>(options, std::move(model), communicator);
  return std::make_unique<Ddp>(options, std::move(model), communicator);
}

}  // namespace unisono::train
