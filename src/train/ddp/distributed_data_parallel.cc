#include "unisono/train/distributed_data_parallel.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

#include "train/ddp/bucket_layout.h"
#include "train/ddp/gradient_buckets.h"
#include "train/ddp/guarded.h"
#include "train/ddp/model_agreement.h"
#include "train/ddp/roll_call.h"
#include "train/ddp/used_parameters.h"
#include "unisono/train/schedule.h"

namespace unisono::train {
namespace {

UsedParameters::Policy policy_of(const DdpOptions& options) {
  if (options.static_graph) return UsedParameters::Policy::kLearnOnce;
  if (options.find_unused_parameters) return UsedParameters::Policy::kAskEachStep;
  return UsedParameters::Policy::kAll;
}

// The limit of buckets until the order of arrival is known: all gradients are in one.
constexpr std::array kOneBucket{std::numeric_limits<std::size_t>::max()};

}  // namespace

class DistributedDataParallel::Impl {
 public:
  Impl(Model& model, Communicator& communicator, DdpOptions options)
      : model_(model),
        communicator_(communicator),
        control_(communicator.duplicate()),
        options_(std::move(options)),
        buckets_(model, communicator, options_),
        used_(model, control_, policy_of(options_)) {
    check_same_model(model, control_);
    broadcast_model(model, control_);
    const std::vector<int> order = reverse_registration_order(model.parameters().entries().size());
    if (rebuilds()) {
      lay_out(order, kOneBucket);
    } else {
      lay_out(order, bucket_limits());
    }
  }

  double step(const Batch& batch, const LossFunction& loss, Optimizer& optimizer,
              float learning_rate, Pass pass) {
    return guarded(pass.statistics, [&] {
      if (no_sync_) {
        throw std::invalid_argument(
            "step() inside of no_sync() would move the parameters of this rank alone; use "
            "forward() and backward() there");
      }
      zero_gradients();
      const Tensor outputs = forward(batch.inputs, pass, Attendance::kStep);
      Tensor output_gradient;
      const double mine = loss(outputs, batch.targets, &output_gradient, 1.0F);
      backward(output_gradient, pass);
      train::step(optimizer, model_, learning_rate);
      return average_over_active(mine);
    });
  }

  Tensor forward(const Tensor& inputs, Pass& pass, Attendance attendance) {
    if (!pass.training) return model_.forward(inputs, pass);
    return guarded(pass.statistics, [&] {
      if (phase_ != Phase::kIdle) {
        throw std::invalid_argument("forward() again without a backward() in between");
      }
      const bool is_synchronised = !no_sync_;
      if (is_synchronised) begin(pass, attendance);
      pass.used.assign(model_.parameters().entries().size(), 0);
      Tensor outputs = model_.forward(inputs, pass);
      used_.add_pass(pass.used);
      if (is_synchronised) settle(pass);
      phase_ = is_synchronised ? Phase::kSynchronised : Phase::kLocal;
      return outputs;
    });
  }

  void backward(const Tensor& output_gradient, Pass& pass) {
    guarded(pass.statistics, [&] {
      const Phase phase = std::exchange(phase_, Phase::kIdle);
      if (phase == Phase::kIdle) {
        throw std::invalid_argument("backward() without a training forward() before");
      }
      if (phase == Phase::kLocal) return model_.backward(output_gradient, pass);
      {
        const Listener listener(*this, pass);
        model_.backward(output_gradient, pass);
      }
      require_all_gradients();
      finish();
    });
  }

  std::size_t join(const std::function<void()>& update) {
    if (!options_.uneven_inputs) {
      throw std::invalid_argument("join() needs DdpOptions::uneven_inputs on all ranks");
    }
    return guarded(nullptr, [&] {
      if (phase_ != Phase::kIdle) {
        throw std::invalid_argument("join() between forward() and backward()");
      }
      std::size_t steps = 0;
      for (;; ++steps) {
        const RollCall roll = call_roll(control_, Attendance::kOutOfData);
        if (roll.active == 0) break;
        shadow(roll);
        if (update) update();
        if (roll.what == Attendance::kStep) average_over_active(0.0);
      }
      if (roll_.active > 0) broadcast_model(model_, control_, roll_.first);
      return steps;
    });
  }

  void zero_gradients() { model_.gradients().zero(); }

  Model& model() { return model_; }
  Communicator& communicator() { return communicator_; }
  Communicator& control() { return control_; }
  const DdpOptions& options() const { return options_; }
  const BucketLayout& buckets() const { return buckets_.layout(); }
  bool buckets_are_final() const { return is_rebuilt_ || !rebuilds(); }
  Progress progress() { return buckets_.progress(); }
  bool set_no_sync(bool no_sync) { return std::exchange(no_sync_, no_sync); }

 private:
  enum class Phase { kIdle, kLocal, kSynchronised };

  // While it lives, hears of the pass' gradients before the caller does.
  class Listener {
   public:
    Listener(Impl& ddp, Pass& pass) : pass_(pass), of_caller_(std::move(pass.gradient_ready)) {
      pass.gradient_ready = [this, &ddp](int parameter) {
        ddp.gradient_ready(parameter);
        if (of_caller_) of_caller_(parameter);
      };
    }
    ~Listener() { pass_.gradient_ready = std::move(of_caller_); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    Pass& pass_;
    std::function<void(int)> of_caller_;
  };

  template <typename Work>
  auto guarded(StatisticsExchange* statistics, const Work& work) -> decltype(work()) {
    return train::guarded({&communicator_, &control_}, statistics, work);
  }

  void lay_out(std::span<const int> order, std::span<const std::size_t> limits) {
    buckets_.lay_out(assign_buckets(model_.parameters(), order, limits));
  }

  // Of the first bucket, and of each further one.
  std::array<std::size_t, 2> bucket_limits() const {
    return {std::min(options_.first_bucket_bytes, options_.bucket_bytes_max),
            options_.bucket_bytes_max};
  }

  bool rebuilds() const { return !options_.find_unused_parameters || options_.static_graph; }

  void begin(const Pass& pass, Attendance attendance) {
    if (options_.uneven_inputs && pass.statistics != nullptr) {
      throw std::invalid_argument(
          "uneven inputs and synchronised batch norms exclude each other: a rank without data "
          "has no statistics to exchange");
    }
    if (options_.uneven_inputs) {
      begin_step(call_roll(control_, attendance));
    } else {
      begin_step({.active = communicator_.size(), .first = 0, .what = attendance});
    }
  }

  // What all ranks do alike before a synchronised pass, with data or without.
  void begin_step(const RollCall& roll) {
    if (synchronised_steps_ > 0 && !is_rebuilt_ && rebuilds()) rebuild();
    roll_ = roll;
    const int divisor =
        options_.join_divisor == JoinDivisor::kActiveRanks ? roll.active : communicator_.size();
    buckets_.begin(1.0F / static_cast<float>(divisor));
    if (options_.broadcast_buffers) broadcast_buffers(model_, control_, roll.first);
  }

  // Parameters that this pass has not used are there at once.
  void settle(const Pass& pass) {
    used_.settle(pass.used);
    for (std::size_t i = 0; i < pass.used.size(); ++i) {
      const auto parameter = static_cast<int>(i);
      if (pass.used[i] != 0 || buckets_.place(parameter) != GradientBuckets::Place::kOpen) continue;
      buckets_.put(parameter);  // an earlier pass may have used it
    }
    if (options_.overlap) buckets_.start_full();
  }

  void gradient_ready(int parameter) {
    const std::size_t count = model_.parameters().entries().size();
    if (parameter < 0 || static_cast<std::size_t>(parameter) >= count) {
      throw std::invalid_argument("the model reports the gradient of parameter " +
                                  std::to_string(parameter) + " of " + std::to_string(count));
    }
    if (buckets_.place(parameter) != GradientBuckets::Place::kOpen) {
      throw std::invalid_argument(
          "the gradient of " + list_names(model_.parameters(), {parameter}) +
          (buckets_.place(parameter) == GradientBuckets::Place::kTaken
               ? " is reported twice in one pass, or forward() did not mark the parameter as used"
               : " is reported, but no rank used the parameter in the first step (static_graph)"));
    }
    if (synchronised_steps_ == 0) arrivals_.push_back(parameter);
    buckets_.put(parameter);
    if (options_.overlap) buckets_.start_full();
  }

  void require_all_gradients() const {
    const std::vector<int> missing = buckets_.missing();
    if (missing.empty()) return;
    throw std::invalid_argument(
        "backward() reported no gradient of parameters that forward() "
        "used: " +
        list_names(model_.parameters(), missing));
  }

  void finish() {
    buckets_.start_full();
    const std::span<const std::uint8_t> used = used_.used_by_any();
    buckets_.finish(used);
    if (synchronised_steps_++ == 0) arrivals_from_ = roll_.first;
    used_.clear();
  }

  void shadow(const RollCall& roll) {
    begin_step(roll);
    used_.clear();
    used_.settle_without_data();
    buckets_.put_zeros_everywhere();
    // As step() does on the others; what no rank uses is not written by finish().
    if (roll.what == Attendance::kStep) zero_gradients();
    finish();
  }

  double average_over_active(double mine) {
    if (!options_.uneven_inputs) return mean_loss(control_, mine);
    control_.all_reduce(std::span(&mine, 1), ops::sum);
    return mine / roll_.active;
  }

  // Buckets follow the order in which gradients arrived on a rank that had data in the first step.
  // What did not arrive there but is used elsewhere comes last; what nobody used is left out.
  void rebuild() {
    const std::span<const std::uint8_t> used = used_.used_by_any();
    std::vector<std::int32_t> order;
    std::vector<std::uint8_t> open(used.begin(), used.end());
    const auto take = [&](int parameter) {
      if (std::exchange(open[static_cast<std::size_t>(parameter)], std::uint8_t{0}) != 0) {
        order.push_back(parameter);
      }
    };
    for (const int parameter : arrivals_) take(parameter);
    for (const int parameter : reverse_registration_order(open.size())) take(parameter);
    if (communicator_.size() > 1 && !order.empty()) {
      control_.broadcast(order, arrivals_from_);
      check_order(order, used);
    }
    lay_out(order, bucket_limits());
    arrivals_.clear();
    is_rebuilt_ = true;
  }

  // Each used parameter once: what came from another rank indexes memory here.
  void check_order(const std::vector<std::int32_t>& order, std::span<const std::uint8_t> used) {
    std::vector<std::uint8_t> open(used.begin(), used.end());
    for (const std::int32_t parameter : order) {
      if (parameter < 0 || static_cast<std::size_t>(parameter) >= open.size() ||
          std::exchange(open[static_cast<std::size_t>(parameter)], std::uint8_t{0}) == 0) {
        throw Error(Status(ErrorCode::kProtocol,
                           "rank " + std::to_string(arrivals_from_) +
                               " sent an order of gradients that is none: parameter " +
                               std::to_string(parameter),
                           arrivals_from_));
      }
    }
  }

  Model& model_;
  Communicator& communicator_;
  Communicator control_;
  DdpOptions options_;
  GradientBuckets buckets_;
  UsedParameters used_;
  Phase phase_ = Phase::kIdle;
  bool no_sync_ = false;
  RollCall roll_;
  std::size_t synchronised_steps_ = 0;
  bool is_rebuilt_ = false;
  std::vector<int> arrivals_;
  Rank arrivals_from_ = 0;
};

DistributedDataParallel::DistributedDataParallel(Model& model, Communicator& communicator,
                                                 DdpOptions options)
    : impl_(std::make_unique<Impl>(model, communicator, std::move(options))) {}
DistributedDataParallel::~DistributedDataParallel() = default;

double DistributedDataParallel::step(const Batch& batch, const LossFunction& loss,
                                     Optimizer& optimizer, float learning_rate, Pass pass) {
  return impl_->step(batch, loss, optimizer, learning_rate, std::move(pass));
}
Tensor DistributedDataParallel::forward(const Tensor& inputs, Pass& pass) {
  return impl_->forward(inputs, pass, Attendance::kPass);
}
void DistributedDataParallel::backward(const Tensor& output_gradient, Pass& pass) {
  impl_->backward(output_gradient, pass);
}
void DistributedDataParallel::zero_gradients() { impl_->zero_gradients(); }
std::size_t DistributedDataParallel::join(const std::function<void()>& update) {
  return impl_->join(update);
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), previous_(ddp.impl_->set_no_sync(true)) {}
DistributedDataParallel::NoSync::~NoSync() { ddp_.impl_->set_no_sync(previous_); }

Model& DistributedDataParallel::model() { return impl_->model(); }
Communicator& DistributedDataParallel::communicator() { return impl_->communicator(); }
Communicator& DistributedDataParallel::control() { return impl_->control(); }
const DdpOptions& DistributedDataParallel::options() const { return impl_->options(); }
const std::vector<std::vector<int>>& DistributedDataParallel::buckets() const {
  return impl_->buckets();
}
bool DistributedDataParallel::buckets_are_final() const { return impl_->buckets_are_final(); }
DistributedDataParallel::Progress DistributedDataParallel::progress() { return impl_->progress(); }

}  // namespace unisono::train
