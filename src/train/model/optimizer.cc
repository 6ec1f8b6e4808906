// SGD with momentum and AdamW: element by element, so any slice of a model can be stepped alone and
// gives the same bits.
#include "unisono/train/optimizer.h"

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "train/model/device_memory.h"

namespace unisono::train {
namespace {

void check_counts(const char* optimizer, std::size_t count, std::size_t parameters,
                  std::size_t gradients) {
  if (parameters == count && gradients == count) return;
  throw std::invalid_argument(std::string(optimizer) + " was made for " + std::to_string(count) +
                              " parameters and is given " + std::to_string(parameters) +
                              " parameters and " + std::to_string(gradients) + " gradients");
}

/// "0.9", "1e-08".
std::string number(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", static_cast<double>(value));
  return text;
}

/// Steps parameters that lie where its maker's tensors lie.
class PlacedOptimizer : public Optimizer {
 public:
  std::vector<float> read(const State& state) const override {
    return host_copy(backend(), state.values);
  }
  void write(std::span<const float> host, const State& state) override {
    if (!host.empty()) backend().write(host.data(), host.size(), state.values.data());
  }

  bool fits(const Tensor& parameters) const override {
    const Backend& there = backend_of(parameters);
    return &there == &backend() || (there.is_host() && backend().is_host());
  }

 protected:
  Backend& backend() const { return place_.backend(); }

 private:
  Place place_;
};

class Sgd final : public PlacedOptimizer {
 public:
  Sgd(std::size_t count, SgdOptions options)
      : options_(options), count_(count), momentum_({options.momentum == 0 ? 0 : count}) {}

  void step(std::span<float> parameters, std::span<const float> gradients,
            float learning_rate) override {
    check_counts("SGD", count_, parameters.size(), gradients.size());
    ++steps_;
    backend().sgd({learning_rate, options_.momentum, options_.weight_decay, options_.nesterov},
                  gradients.data(), count_, momentum_.data(), parameters.data());
  }

  std::vector<State> state() override {
    if (options_.momentum == 0) return {};
    return {{"momentum", momentum_.values()}};
  }
  std::size_t steps() const override { return steps_; }
  void set_steps(std::size_t steps) override { steps_ = steps; }
  std::string describe() const override {
    return "SGD, momentum " + number(options_.momentum) + (options_.nesterov ? " (Nesterov)" : "") +
           ", weight decay " + number(options_.weight_decay);
  }

 private:
  SgdOptions options_;
  std::size_t count_, steps_ = 0;
  Tensor momentum_;
};

class AdamW final : public PlacedOptimizer {
 public:
  AdamW(std::size_t count, AdamWOptions options)
      : options_(options), count_(count), first_({count}), second_({count}) {}

  void step(std::span<float> parameters, std::span<const float> gradients,
            float learning_rate) override {
    check_counts("AdamW", count_, parameters.size(), gradients.size());
    const auto [beta1, beta2, epsilon, decay] = options_;
    ++steps_;
    // Both moments start at zero; this undoes the bias. In double, for beta^steps nears zero
    // slowly.
    const auto t = static_cast<double>(steps_);
    const double correction1 = 1 - std::pow(static_cast<double>(beta1), t);
    const double correction2 = 1 - std::pow(static_cast<double>(beta2), t);
    const auto rate = static_cast<float>(static_cast<double>(learning_rate) / correction1);
    const auto root = static_cast<float>(1 / std::sqrt(correction2));
    backend().adamw(
        {beta1, 1 - beta1, beta2, 1 - beta2, epsilon, 1 - learning_rate * decay, rate, root},
        gradients.data(), count_, first_.data(), second_.data(), parameters.data());
  }

  std::vector<State> state() override {
    return {{"first_moment", first_.values()}, {"second_moment", second_.values()}};
  }
  std::size_t steps() const override { return steps_; }
  void set_steps(std::size_t steps) override { steps_ = steps; }
  std::string describe() const override {
    return "AdamW, betas " + number(options_.beta1) + " and " + number(options_.beta2) +
           ", weight decay " + number(options_.weight_decay);
  }

 private:
  AdamWOptions options_;
  std::size_t count_, steps_ = 0;
  Tensor first_, second_;
};

}  // namespace

void step(Optimizer& optimizer, Model& model, float learning_rate) {
  if (!optimizer.fits(model.parameters().storage())) {
    throw std::invalid_argument(optimizer.describe() + " was made elsewhere than " +
                                model.describe() +
                                " lies; make both in the scope of one DeviceMemory");
  }
  optimizer.step(model.parameters().values(), std::as_const(model.gradients()).values(),
                 learning_rate);
}

std::unique_ptr<Optimizer> make_sgd(std::size_t count, SgdOptions options) {
  if (options.nesterov && options.momentum == 0) {
    throw std::invalid_argument("SGD: Nesterov's form needs a momentum");
  }
  return std::make_unique<Sgd>(count, options);
}

std::unique_ptr<Optimizer> make_adamw(std::size_t count, AdamWOptions options) {
  return std::make_unique<AdamW>(count, options);
}

}  // namespace unisono::train
