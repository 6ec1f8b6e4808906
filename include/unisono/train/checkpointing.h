// Gradient checkpointing: activations computed again in backward instead of kept.
#pragma once

#include "unisono/train/model.h"

namespace unisono::train {

/// For a model of n layers. Backward repeats the forward with the same random numbers and without
/// moving running statistics, so the gradients are the same bits in every mode, and gradient_ready
/// is called once per parameter as ever. A residual block is one layer, so no skip connection
/// crosses a segment.
enum class Checkpointing {
  kNone,  ///< every layer's input is kept: n inputs, n layer forwards
  kSqrt,  ///< segments of ceil(sqrt(n)) layers, their inputs kept: about 2 sqrt(n) inputs, 2 n
          ///< layer forwards (Chen et al., 2016)
  kPoor,  ///< the model's input alone: 2 inputs, n + n (n + 1) / 2 layer forwards
};

/// From the next forward on. Replicas made by clone() have the mode too. A model that was not made
/// by models.h is refused with std::invalid_argument.
void set_checkpointing(Model& model, Checkpointing mode);

}  // namespace unisono::train
