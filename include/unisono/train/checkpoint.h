// Checkpoints: all that training goes on from, in one file.
//
// Values lie in host memory and carry the model's own names, so a checkpoint is read by any
// strategy, on any device and any number of ranks. Rank 0 saves; a barrier before and after is the
// caller's.
//
// The file, all numbers little-endian:
//    0  8 bytes  "UNISONO", 0x1a
//    8  u32      version, 3
//   12  u32      CRC-32 of everything from byte 16 on
//   16  u64      bytes of the file
//   24  body     string model; tensors parameters; tensors buffers; string optimizer;
//                u64 optimizer steps; arrays optimizer state; u64 epoch; u64 step;
//                u64 samples of a step; string order; u64 sampler seed
// string: u32 bytes and the bytes. arrays: u32 n and n times (string name, u64 count, count f32).
// tensors: u32 n and n times (string name, u32 dimensions, u64 each, f32 values).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/train/tensor.h"

namespace unisono::train {

class Model;
class Optimizer;

struct Checkpoint {
  struct NamedTensor {
    std::string name;
    Shape shape;  ///< at most 16 dimensions
    std::vector<float> values;
  };
  /// One value per parameter of the whole model, whichever rank updates it.
  struct NamedArray {
    std::string name;
    std::vector<float> values;
  };

  std::string model;  ///< Model::describe()
  std::vector<NamedTensor> parameters, buffers;
  std::string optimizer;  ///< Optimizer::describe()
  std::uint64_t optimizer_steps = 0;
  std::vector<NamedArray> optimizer_state;
  std::uint64_t epoch = 0;  ///< to go on with
  std::uint64_t step = 0;   ///< of the epoch, to go on with
  /// What `step` counts: samples of a step over all ranks, and the order they are taken in. It
  /// means nothing to a run with others.
  std::uint64_t step_samples = 0;
  std::string order;  ///< at most 64 bytes
  std::uint64_t sampler_seed = 0;
};

/// Writes `path` so that at any moment it is either the previous checkpoint or the new one, whole:
/// a file "<path>.tmp-<16 hexadecimal digits>" is written, synchronised and renamed. A kill leaves
/// at most that file, which the next save removes, as it does the file of a save that has not
/// ended. std::runtime_error when it cannot be written (disk full, no such folder, another process
/// has begun to save meanwhile), std::invalid_argument for values that are beyond the limits above
/// or do not fit their shape: the checkpoint is untouched.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

/// Everything in the file is checked before use. std::runtime_error when there is none, it is not a
/// checkpoint, cut short or damaged.
Checkpoint load_checkpoint(const std::string& path);

/// Copies description, parameters and buffers out of `model`.
void take_model(const Model& model, Checkpoint* checkpoint);
/// Copies parameters and buffers into `model`. std::invalid_argument with both descriptions when
/// the checkpoint is another model's; then nothing was copied.
void restore_model(const Checkpoint& checkpoint, Model* model);

/// Copies name, steps and state out of an optimizer of the whole model.
void take_optimizer(Optimizer& optimizer, Checkpoint* checkpoint);
/// Copies steps and state into an optimizer of the `count` parameters from `offset` on: 0 and the
/// size of the state for the whole model, or a rank's part. std::invalid_argument when the
/// checkpoint is another optimizer's or the range is not in it; then nothing was copied.
void restore_optimizer(const Checkpoint& checkpoint, Optimizer* optimizer, std::size_t offset,
                       std::size_t count);

}  // namespace unisono::train
