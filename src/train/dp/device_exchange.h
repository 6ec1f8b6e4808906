// One device's side of the collectives of a step, each pinned to the plan that moves every byte
// once between the root and the others. A null communicator is a single device: a copy or nothing.
//
// Stateless. Threads: as Communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/communicator.h"
#include "unisono/train/model.h"

namespace unisono::train {

/// root's values to all.
void broadcast_values(Communicator* devices, Arena& arena, std::size_t root);
/// counts[i] elements to device i, end to end in root's `whole`, which only root needs to have.
void scatter_values(Communicator* devices, const Tensor& whole, std::span<const std::size_t> counts,
                    Tensor& mine, std::size_t root);
/// The same of values in the host's memory.
void scatter_values(Communicator* devices, const float* whole, std::span<const std::size_t> counts,
                    std::span<float> mine, std::size_t root);
void scatter_values(Communicator* devices, const std::int32_t* whole,
                    std::span<const std::size_t> counts, std::span<std::int32_t> mine,
                    std::size_t root);
/// counts[i] elements from device i, end to end into root's `whole`.
void gather_values(Communicator* devices, const Tensor& mine, std::span<const std::size_t> counts,
                   Tensor& whole, std::size_t root);
/// Sums all values into root's; the others keep theirs.
void reduce_values(Communicator* devices, Arena& arena, std::size_t root);
void reduce_values(Communicator* devices, std::span<float> host, std::size_t root);

}  // namespace unisono::train
