// Do all ranks hold the same model? The first thing that every strategy asks.
#pragma once

#include <string>
#include <vector>

#include "unisono/communicator.h"
#include "unisono/train/model.h"

namespace unisono::train {

/// Collective. Compares names and shapes of parameters and buffers with rank 0's. When a rank
/// differs, std::invalid_argument on every rank, naming rank 0, that rank and the first entry that
/// differs.
void check_same_model(const Model& model, Communicator& communicator);

/// Collective: parameters and buffers of `root` to all.
void broadcast_model(Model& model, Communicator& communicator, Rank root = 0);

/// The parameters' names for a message: "a, b, c and 4 more".
std::string list_names(const Arena& parameters, const std::vector<int>& indices);

}  // namespace unisono::train
