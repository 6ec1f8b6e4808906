// The strategies of one process, and which option means which strategy.
#include "tools/train/strategy.h"

#include <algorithm>
#include <utility>

#include "tools/train/placement.h"
#include "unisono/train/data_parallel.h"
#include "unisono/train/loss.h"

namespace unisono::train {
namespace {

// Plain training: what every other strategy is compared with.
class Single : public Strategy {
 public:
  Single(const Options& options, std::unique_ptr<Model> model)
      : model_(std::move(model)),
        optimizer_(optimizer_of(options)(model_->parameters().values().size())),
        seed_(options.seed) {}

  double step(std::span<const Batch> passes, float rate, std::uint64_t step) override {
    model_->gradients().zero();
    double loss = 0;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      Pass pass{.seed = seed_, .step = step, .micro_batch = i};
      const Tensor outputs = model_->forward(passes[i].inputs, pass);
      Tensor gradient;
      loss += cross_entropy(outputs, passes[i].targets, &gradient,
                            1.0F / static_cast<float>(passes.size()));
      model_->backward(gradient, pass);
    }
    train::step(*optimizer_, *model_, rate);
    return loss / static_cast<double>(passes.size());
  }

  Tensor predict(const Tensor& inputs) override {
    Pass pass{.training = false};
    return model_->forward(inputs, pass);
  }
  Model& model() override { return *model_; }
  std::vector<DeviceCost> costs(std::size_t peak_memory) override {
    return {{.device = 0, .peak_memory = peak_memory, .traffic = {}}};
  }

 private:
  Optimizer& optimizer() override { return *optimizer_; }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::uint64_t seed_;
};

// The threads of DataParallel as devices.
class Devices : public Strategy {
 public:
  Devices(const Options& options, std::unique_ptr<Model> model)
      : parallel_(std::move(model), optimizer_of(options),
                  {.devices = options.devices,
                   .gpus = gpus_of_devices(options),
                   .output_device = options.output_device,
                   .first_batch = options.first_batch,
                   .parallel_loss = options.strategy == StrategyKind::kDpCriterion,
                   .seed = options.seed}),
        costs_(options.devices.size()) {}

  double step(std::span<const Batch> passes, float rate, std::uint64_t) override {
    double loss = 0;
    for (const Batch& batch : passes) {
      loss += parallel_.backward(batch, 1.0F / static_cast<float>(passes.size()));
    }
    parallel_.update(rate);
    note_costs();
    return loss / static_cast<double>(passes.size());
  }

  // By the first device's model alone: a scattered test would be counted into the next step.
  Tensor predict(const Tensor& inputs) override {
    Pass pass{.training = false};
    return parallel_.model().forward(inputs, pass);
  }
  Model& model() override { return parallel_.model(); }
  std::vector<DeviceCost> costs(std::size_t) override { return costs_; }

 private:
  Optimizer& optimizer() override { return parallel_.optimizer(); }
  void note_costs() {
    const StepReport report = parallel_.report();
    for (std::size_t i = 0; i < report.devices.size(); ++i) {
      costs_[i].device = report.devices[i].device;
      costs_[i].peak_memory = std::max(costs_[i].peak_memory, report.devices[i].peak_memory);
      costs_[i].traffic += report.devices[i].traffic;
    }
  }

  DataParallel parallel_;
  std::vector<DeviceCost> costs_;
};

}  // namespace

OptimizerFactory optimizer_of(const Options& options) {
  if (options.optimizer == OptimizerKind::kSgd) {
    return [sgd = SgdOptions{.momentum = options.momentum, .weight_decay = options.weight_decay}](
               std::size_t count) { return make_sgd(count, sgd); };
  }
  return [decay = options.weight_decay](std::size_t count) {
    return make_adamw(count, {.weight_decay = decay});
  };
}

std::unique_ptr<Strategy> make_strategy(const Options& options, std::unique_ptr<Model> model,
                                        Communicator& communicator) {
  switch (options.strategy) {
    case StrategyKind::kSingle:
      return std::make_unique<Single>(options, std::move(model));
    case StrategyKind::kDp:
    case StrategyKind::kDpBalanced:
    case StrategyKind::kDpCriterion:
      return std::make_unique<Devices>(options, std::move(model));
    case StrategyKind::kDdp:
    case StrategyKind::kZero1:
      return make_rank_strategy(options, std::move(model), communicator);
  }
  return nullptr;
}

}  // namespace unisono::train
