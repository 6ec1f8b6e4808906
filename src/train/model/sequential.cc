// Forward and backward through a sequence of layers, with three ways to trade memory for time.
#include "train/model/sequential.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "train/model/device_memory.h"

namespace unisono::train {
namespace {

Sequential& sequential(Model& model, const char* what) {
  if (auto* found = dynamic_cast<Sequential*>(&model)) return *found;
  throw std::invalid_argument(std::string(what) + ": " + model.describe() +
                              " is no sequence of layers of this library; only those know how");
}

void note_kept(Pass& pass, std::size_t inputs) {
  pass.kept_inputs_peak = std::max<std::uint64_t>(pass.kept_inputs_peak, inputs);
}

/// A recomputed forward must not move running statistics a second time.
class BuffersStay {
 public:
  explicit BuffersStay(Pass& pass)
      : pass_(pass), before_(std::exchange(pass.update_buffers, false)) {}
  ~BuffersStay() { pass_.update_buffers = before_; }
  BuffersStay(const BuffersStay&) = delete;
  BuffersStay& operator=(const BuffersStay&) = delete;

 private:
  Pass& pass_;
  bool before_;
};

}  // namespace

void set_checkpointing(Model& model, Checkpointing mode) {
  sequential(model, "gradient checkpointing").set_checkpointing(mode);
}

std::size_t convert_sync_batch_norm(Model& model) {
  return sequential(model, "SyncBatchNorm").convert_sync_batch_norm();
}

Sequential::Sequential(std::string description, std::size_t features, Layers layers,
                       std::uint64_t seed)
    : description_(std::move(description)), features_(features), layers_(std::move(layers)) {
  if (layers_.empty()) throw std::invalid_argument(description_ + ": a model without layers");
  initialise(seed);
  if (current_backend().is_host()) return;
  // Copies go where the calling thread's tensors lie.
  for (Arena* arena : {&parameters_, &gradients_, &buffers_}) *arena = Arena(*arena);
}

// On the host, whose random numbers the values are.
void Sequential::initialise(std::uint64_t seed) {
  const AccountScope scope(hosts_account());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Declaration declaration(parameters_, buffers_, "layers." + std::to_string(i) + ".");
    layers_[i]->declare(declaration);
  }
  for (const auto& entry : parameters_.entries()) gradients_.add(entry.name, entry.shape);
  parameters_.allocate();
  gradients_.allocate();
  buffers_.allocate();
  Random random(seed);
  for (const auto& layer : layers_) layer->initialise(parameters_, buffers_, random);
}

Sequential::Sequential(const Sequential& other)
    : Model(other),
      description_(other.description_),
      features_(other.features_),
      layers_(other.layers_),
      mode_(other.mode_),
      segment_(other.segment_),
      sync_batch_norm_(other.sync_batch_norm_) {}

std::unique_ptr<Model> clone_to(const Model& model, DeviceMemory& memory) {
  if (memory.residence() == Residence::kCuda && !model.runs_on_gpu()) {
    throw std::invalid_argument(model.describe() +
                                " computes on the host; models of models.h run on a GPU");
  }
  const DeviceMemory::Scope scope(memory);
  return model.clone();
}

std::unique_ptr<Model> Sequential::clone() const {
  return std::unique_ptr<Model>(new Sequential(*this));
}

void Sequential::set_checkpointing(Checkpointing mode) {
  mode_ = mode;
  segment_ = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(layers_.size()))));
  kept_ = {};
}

std::size_t Sequential::convert_sync_batch_norm() {
  std::size_t count = 0;
  for (const auto& layer : layers_) count += layer->batch_norms();
  sync_batch_norm_ = true;
  return count;
}

Call Sequential::call(Pass& pass) {
  return {backend_of(parameters_), parameters_, gradients_, buffers_, pass, sync_batch_norm_};
}

bool Sequential::keeps_input_of(std::size_t layer) const {
  switch (mode_) {
    case Checkpointing::kNone:
      return true;
    case Checkpointing::kSqrt:
      return layer % segment_ == 0;
    case Checkpointing::kPoor:
      break;
  }
  return layer == 0;
}

Tensor Sequential::checked(const Tensor& inputs) const {
  const Shape& shape = inputs.shape();
  const std::size_t samples = shape.empty() ? 0 : shape[0];
  if (shape.empty() || element_count(Shape(shape.begin() + 1, shape.end())) != features_) {
    throw std::invalid_argument(description_ + " takes [batch, " + std::to_string(features_) +
                                "] and is given " + to_string(shape));
  }
  return Tensor(inputs).reshaped({samples, features_});
}

Tensor Sequential::run(std::size_t layer, const Tensor& input, Call& call, Saved* saved) {
  ++call.pass.layer_forwards;
  return layers_[layer]->forward(input, call, saved);
}

Tensor Sequential::go_back(std::size_t first, std::size_t last, Kept& kept, Tensor gradient,
                           Pass& pass) {
  for (std::size_t i = last; i-- > first;) {
    Call back = call(pass);
    back.input_gradient = i > 0;
    gradient = layers_[i]->backward(kept.inputs.back(), gradient, back, kept.saved.back());
    kept.inputs.pop_back();
    kept.saved.pop_back();
  }
  return gradient;
}

Tensor Sequential::again(std::size_t first, std::size_t last, Kept segment, std::size_t others,
                         Tensor gradient, Pass& pass) {
  Call shared = call(pass);
  for (std::size_t i = first; i < last; ++i) {
    Tensor y = run(i, segment.inputs.back(), shared, &segment.saved.emplace_back());
    if (i + 1 < last) segment.inputs.push_back(std::move(y));
  }
  note_kept(pass, others + segment.inputs.size());
  return go_back(first, last, segment, std::move(gradient), pass);
}

Tensor Sequential::forward(const Tensor& inputs, Pass& pass) {
  const AccountScope scope(place_of(parameters_));
  if (pass.training) kept_ = {};
  Tensor x = checked(inputs);
  Call shared = call(pass);
  Kept kept;  // so that a forward that fails leaves nothing behind
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const bool keep_saved = pass.training && mode_ == Checkpointing::kNone;
    Tensor y = run(i, x, shared, keep_saved ? &kept.saved.emplace_back() : nullptr);
    if (pass.training && keeps_input_of(i)) kept.inputs.push_back(std::move(x));
    x = std::move(y);
  }
  if (pass.training) {
    kept_ = std::move(kept);
    output_shape_ = x.shape();
    note_kept(pass, kept_.inputs.size());
  }
  return x;
}

void Sequential::backward(const Tensor& output_gradient, Pass& pass) {
  if (kept_.inputs.empty()) {
    throw std::invalid_argument(description_ + ": backward without a forward in training before");
  }
  if (output_gradient.shape() != output_shape_) {
    throw std::invalid_argument(description_ + ": a gradient of shape " +
                                to_string(output_gradient.shape()) + " for outputs of shape " +
                                to_string(output_shape_));
  }
  const AccountScope scope(place_of(parameters_));
  const BuffersStay stay(pass);
  Kept kept = std::exchange(kept_, {});
  Tensor gradient = output_gradient;
  switch (mode_) {
    case Checkpointing::kNone:
      go_back(0, layers_.size(), kept, std::move(gradient), pass);
      return;
    case Checkpointing::kSqrt:
      return sqrt_backward(kept, std::move(gradient), pass);
    case Checkpointing::kPoor:
      return poor_backward(kept.inputs.front(), std::move(gradient), pass);
  }
}

void Sequential::sqrt_backward(Kept& kept, Tensor gradient, Pass& pass) {
  for (std::size_t last = layers_.size(); last > 0;) {
    const std::size_t first = (last - 1) / segment_ * segment_;
    Kept segment;
    segment.inputs.push_back(std::move(kept.inputs.back()));
    kept.inputs.pop_back();
    const std::size_t others = kept.inputs.size();
    gradient = again(first, last, std::move(segment), others, std::move(gradient), pass);
    last = first;
  }
}

void Sequential::poor_backward(const Tensor& input, Tensor gradient, Pass& pass) {
  for (std::size_t last = layers_.size(); last > 0; --last) {
    Kept segment;
    Call shared = call(pass);
    Tensor x = input;
    for (std::size_t i = 0; i + 1 < last; ++i) x = run(i, x, shared, nullptr);
    segment.inputs.push_back(std::move(x));
    gradient = again(last - 1, last, std::move(segment), 1, std::move(gradient), pass);
  }
}

}  // namespace unisono::train
