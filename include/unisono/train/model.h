// A model: named parameters and buffers in flat arenas, a forward and a backward pass.
//
// Everything that data parallelism needs to know of a model is here: where its parameters lie (in
// forward order, end to end, so that a bucket is a range), which of them a pass used, and when each
// gradient is final. Models of your own derive from Model; the ready ones are in models.h.
//
// Threads: one thread at a time uses a model; replicas are models of their own.
//
// The least that a model does, with one weight per class:
//
//   struct Scale : Model {
//     explicit Scale(std::size_t classes) {
//       for (Arena* arena : {&parameters_, &gradients_}) {  // the same names in both
//         arena->add("weight", {classes});                  // parameter 0
//         arena->allocate();                                // zeros
//       }
//     }
//     Tensor forward(const Tensor& inputs, Pass& pass) override {
//       if (!pass.used.empty()) pass.used[0] = 1;
//       Tensor outputs = kept = inputs;
//       const std::span<const float> weight = parameters_[0];
//       for (std::size_t i = 0; i < kept.size(); ++i)
//         outputs.data()[i] *= weight[i % weight.size()];
//       return outputs;
//     }
//     void backward(const Tensor& slope, Pass& pass) override {
//       const std::span<float> sum = gradients_[0];  // added to, never set
//       for (std::size_t i = 0; i < kept.size(); ++i)
//         sum[i % sum.size()] += kept.data()[i] * slope.data()[i];
//       if (pass.gradient_ready) pass.gradient_ready(0);  // nothing is added to it any more
//     }
//     std::unique_ptr<Model> clone() const override { return std::make_unique<Scale>(*this); }
//     std::string describe() const override { return "scale"; }
//     Tensor kept;
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/error.h"
#include "unisono/train/tensor.h"
#include "unisono/types.h"

namespace unisono::train {

/// Named tensors end to end in one 64-byte aligned allocation, in the order of add(). Values are
/// addresses of a GPU where storage() lies on one.
class Arena {
 public:
  struct Entry {
    std::string name;  ///< "layers.0.weight"
    Shape shape;
    std::size_t offset = 0, count = 0;  ///< elements
  };

  /// The entry's index. Only before allocate(). Names are unique; std::invalid_argument else.
  int add(std::string name, Shape shape);
  void allocate();  ///< zeros
  void zero();

  const std::vector<Entry>& entries() const { return entries_; }
  std::span<float> values() { return storage_.values(); }
  std::span<const float> values() const { return storage_.values(); }
  std::span<float> operator[](int index);
  std::span<const float> operator[](int index) const;
  /// -1: no entry of this name.
  int find(std::string_view name) const;
  /// What holds the values; empty before allocate().
  const Tensor& storage() const { return storage_; }
  /// A copy in the host's memory.
  std::vector<float> read() const;
  /// `host` are as many as values(); std::invalid_argument else.
  void write(std::span<const float> host);

 private:
  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  Tensor storage_;
};

/// How a batch norm learns the other ranks' statistics; null in Pass: it does not. Collective:
/// every rank makes the same calls in the same order, ranks with an empty batch too.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;
  virtual int ranks() const = 0;
  /// `all` holds ranks() * mine.size() values, by rank.
  virtual void all_gather(std::span<const float> mine, std::span<float> all) = 0;
  virtual void all_reduce_sum(std::span<float> values) = 0;
  /// Ok until its calls have failed; the rank is one of ranks(), -1 where that is not known.
  virtual Status status() const = 0;
  /// This rank cannot go on, because of itself or of `failed_rank`, as status() numbers it: ends
  /// the calls in which the other ranks wait for it.
  virtual void abort(const std::string& reason, Rank failed_rank) = 0;
};

/// One forward pass and its backward: what the caller asks for, and what it learns.
struct Pass {
  bool training = true;
  /// Key of this pass' random numbers (dropout): the same triple gives the same numbers, so a
  /// recomputed forward repeats them, on whichever rank it runs.
  std::uint64_t seed = 0, step = 0, micro_batch = 0;
  /// Batch norms move their running statistics (off when a segment is recomputed).
  bool update_buffers = true;
  StatisticsExchange* statistics = nullptr;
  /// Backward calls it once per used parameter, as soon as its gradient is final, in the order in
  /// which they become final. May be empty.
  std::function<void(int parameter)> gradient_ready;
  /// Forward sets used[p] for every parameter it reads; sized by the caller or left empty.
  std::vector<std::uint8_t> used;
  /// Forward calls of layers so far, recomputed ones too: what checkpointing costs.
  std::uint64_t layer_forwards = 0;
  /// Most layer inputs that forward and backward kept at once: what checkpointing saves.
  std::uint64_t kept_inputs_peak = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  /// [batch, ...] to [rows, classes]. Keeps what backward() needs. An empty batch is allowed.
  virtual Tensor forward(const Tensor& inputs, Pass& pass) = 0;
  /// Adds to gradients() what `output_gradient` (the shape of forward()'s result) causes. Once per
  /// forward().
  virtual void backward(const Tensor& output_gradient, Pass& pass) = 0;
  /// A model of the same architecture with its own arenas, values copied: a replica.
  virtual std::unique_ptr<Model> clone() const = 0;
  /// "mlp 784-256-10", for people and for checkpoints of another model.
  virtual std::string describe() const = 0;
  /// Computes wherever its parameters lie. Models that touch their values from the host do not.
  virtual bool runs_on_gpu() const { return false; }

  Arena& parameters() { return parameters_; }
  const Arena& parameters() const { return parameters_; }
  /// Same entries as parameters().
  Arena& gradients() { return gradients_; }
  const Arena& gradients() const { return gradients_; }
  /// Not trained, yet state: batch norms' running statistics. May have no entries.
  Arena& buffers() { return buffers_; }
  const Arena& buffers() const { return buffers_; }

 protected:
  Model() = default;
  Model(const Model&) = default;
  Model& operator=(const Model&) = delete;

  Arena parameters_, gradients_, buffers_;
};

/// A replica whose arenas, and so all that it computes, lie in `memory`. std::invalid_argument for
/// a model that does not run there.
std::unique_ptr<Model> clone_to(const Model& model, DeviceMemory& memory);

}  // namespace unisono::train
