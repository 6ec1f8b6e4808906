// A model that is a sequence of layers: the ready models, and what checkpointing and SyncBatchNorm
// switch on.
#pragma once

#include "train/model/layer.h"
#include "unisono/train/checkpointing.h"

namespace unisono::train {

class Sequential final : public Model {
 public:
  /// `features` are the values of one sample. The layers are declared and their parameters set from
  /// `seed`.
  Sequential(std::string description, std::size_t features, Layers layers, std::uint64_t seed);

  Tensor forward(const Tensor& inputs, Pass& pass) override;
  void backward(const Tensor& output_gradient, Pass& pass) override;
  std::unique_ptr<Model> clone() const override;
  std::string describe() const override { return description_; }
  bool runs_on_gpu() const override { return true; }

  void set_checkpointing(Checkpointing mode);
  /// How many batch norms share their statistics from now on.
  std::size_t convert_sync_batch_norm();

 private:
  void initialise(std::uint64_t seed);

  /// Inputs of layers in forward order, and what the same layers left.
  struct Kept {
    std::vector<Tensor> inputs;
    std::vector<Saved> saved;
  };

  /// Replicas share the layers; what a forward kept stays with its model.
  Sequential(const Sequential& other);

  Call call(Pass& pass);
  bool keeps_input_of(std::size_t layer) const;
  Tensor checked(const Tensor& inputs) const;
  Tensor run(std::size_t layer, const Tensor& input, Call& call, Saved* saved);
  /// Back through layers [first, last), whose inputs and Saved end `kept`; those are freed.
  Tensor go_back(std::size_t first, std::size_t last, Kept& kept, Tensor gradient, Pass& pass);
  /// Forward once more from the one input in `segment`, then back; `others` inputs are kept too.
  Tensor again(std::size_t first, std::size_t last, Kept segment, std::size_t others,
               Tensor gradient, Pass& pass);
  void sqrt_backward(Kept& kept, Tensor gradient, Pass& pass);
  void poor_backward(const Tensor& input, Tensor gradient, Pass& pass);

  std::string description_;
  std::size_t features_;
  Layers layers_;
  Checkpointing mode_ = Checkpointing::kNone;
  std::size_t segment_ = 1;  // layers of a segment
  bool sync_batch_norm_ = false;

  // Of the last training forward.
  Kept kept_;
  Shape output_shape_;
};

}  // namespace unisono::train
