#include "unisono/train/zero.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "train/ddp/communication_buffer.h"
#include "train/ddp/guarded.h"
#include "train/ddp/model_agreement.h"
#include "unisono/train/distributed_data_parallel.h"
#include "unisono/train/schedule.h"

namespace unisono::train {

class ZeroOptimizer::Impl {
 public:
  Impl(Model& model, Communicator& communicator, const OptimizerFactory& make_optimizer,
       ZeroOptions options)
      : model_(model),
        communicator_(communicator),
        control_(communicator.duplicate()),
        options_(std::move(options)) {
    check_same_model(model, control_);
    broadcast_model(model, control_);
    const std::size_t size = model.parameters().values().size();
    const auto ranks = static_cast<std::size_t>(communicator.size());
    slice_ = (size + ranks - 1) / ranks;
    first_ = std::min(slice_ * static_cast<std::size_t>(communicator.rank()), size);
    count_ = std::min(slice_, size - first_);
    const AccountScope scope(place_of(model.gradients()));
    padded_ = std::make_unique<CommunicationBuffer<float>>(communicator, slice_ * ranks);
    backend().fill(padded_->data(), padded_->size(), 0.0F);
    optimizer_ = make_optimizer(count_);
  }

  double step(const Batch& batch, const LossFunction& loss, float learning_rate, Pass pass) {
    return guarded({&communicator_, &control_}, pass.statistics, [&] {
      model_.gradients().zero();
      if (options_.broadcast_buffers) broadcast_buffers();
      const Tensor outputs = model_.forward(batch.inputs, pass);
      Tensor output_gradient;
      const double mine = loss(outputs, batch.targets, &output_gradient, 1.0F);
      model_.backward(output_gradient, pass);
      update(learning_rate);
      return mean_loss(control_, mine);
    });
  }

  void update(float learning_rate) {
    guarded({&communicator_, &control_}, nullptr, [&] { exchange_and_move(learning_rate); });
  }

  void broadcast_buffers() { train::broadcast_buffers(model_, control_); }

  void gather_optimizer(Checkpoint* checkpoint) {
    const bool is_root = control_.rank() == 0;
    if (is_root) {
      checkpoint->optimizer = optimizer_->describe();
      checkpoint->optimizer_steps = optimizer_->steps();
      checkpoint->optimizer_state.clear();
    }
    for (const Optimizer::State& state : optimizer_->state()) {
      std::vector<float> slice = host_copy(backend(), state.values);
      slice.resize(slice_);
      std::vector<float> whole(is_root ? padded_->size() : 0);
      control_.gather(slice.data(), whole.data(), slice_, DataType::kFloat32, 0);
      if (!is_root) continue;
      whole.resize(model_.parameters().values().size());
      checkpoint->optimizer_state.push_back({state.name, std::move(whole)});
    }
  }

  std::size_t first() const { return first_; }
  std::size_t count() const { return count_; }
  Optimizer& optimizer() { return *optimizer_; }
  Model& model() { return model_; }
  Communicator& control() { return control_; }

 private:
  Backend& backend() const { return backend_of(model_.gradients()); }

  void exchange_and_move(float learning_rate) {
    float* const own = padded_->data() + slice_ * static_cast<std::size_t>(communicator_.rank());
    const float factor = 1.0F / static_cast<float>(communicator_.size());
    const std::span<const float> gradients = std::as_const(model_.gradients()).values();
    backend().scale(gradients.data(), gradients.size(), factor, padded_->data());
    // Waited for: a stream goes on behind a call that has failed.
    communicator_
        .start({.collective = Collective::kReduceScatter,
                .in = padded_->data(),
                .out = own,
                .count = slice_,
                .type = DataType::kFloat32,
                .op = ops::sum,
                .options = in_stream(backend(), options_.reduction)})
        .wait();
    const std::span<float> parameters = model_.parameters().values();
    optimizer_->step(parameters.subspan(first_, count_), {own, count_}, learning_rate);
    backend().copy(parameters.data() + first_, count_, own);
    communicator_
        .start({.collective = Collective::kAllGather,
                .in = own,
                .out = padded_->data(),
                .count = slice_,
                .type = DataType::kFloat32,
                .options = in_stream(backend(), options_.gather)})
        .wait();
    backend().copy(padded_->data(), parameters.size(), parameters.data());
  }

  Model& model_;
  Communicator& communicator_;
  Communicator control_;
  ZeroOptions options_;
  std::size_t slice_ = 0;                               // of every rank, padding included
  std::size_t first_ = 0, count_ = 0;                   // of this one, in the arena
  std::unique_ptr<CommunicationBuffer<float>> padded_;  // gradients, then parameters, of all slices
  std::unique_ptr<Optimizer> optimizer_;
};

ZeroOptimizer::ZeroOptimizer(Model& model, Communicator& communicator,
                             const OptimizerFactory& make_optimizer, ZeroOptions options)
    : impl_(std::make_unique<Impl>(model, communicator, make_optimizer, std::move(options))) {}
ZeroOptimizer::~ZeroOptimizer() = default;

double ZeroOptimizer::step(const Batch& batch, const LossFunction& loss, float learning_rate,
                           Pass pass) {
  return impl_->step(batch, loss, learning_rate, std::move(pass));
}
void ZeroOptimizer::update(float learning_rate) { impl_->update(learning_rate); }
void ZeroOptimizer::broadcast_buffers() { impl_->broadcast_buffers(); }
std::size_t ZeroOptimizer::first() const { return impl_->first(); }
std::size_t ZeroOptimizer::count() const { return impl_->count(); }
Optimizer& ZeroOptimizer::optimizer() { return impl_->optimizer(); }
void ZeroOptimizer::gather_optimizer(Checkpoint* checkpoint) {
  impl_->gather_optimizer(checkpoint);
}
Model& ZeroOptimizer::model() { return impl_->model(); }
Communicator& ZeroOptimizer::control() { return impl_->control(); }

}  // namespace unisono::train
