// The bytes of a checkpoint file and how they get to the disk; the format is in
// unisono/train/checkpoint.h. Throws std::runtime_error with the path.
#pragma once

#include <functional>
#include <string>

#include "unisono/train/checkpoint.h"

namespace unisono::train {

/// How far a save has come. A process may end at any of them and between.
enum class SaveStage { kOpened, kWritten, kSynchronized, kRenamed };

/// save_checkpoint() that tells `reached`, which may be empty, of every stage.
void write_checkpoint_file(const std::string& path, const Checkpoint& checkpoint,
                           const std::function<void(SaveStage)>& reached);

Checkpoint read_checkpoint_file(const std::string& path);

}  // namespace unisono::train
