// Where batches wait for the GPU, and what their way there takes.
//
// Threads: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tools/train/options.h"
#include "unisono/train/tensor.h"

namespace unisono::train {

/// The memory that batches are put into, and what there is to say about it.
struct BatchMemory {
  std::unique_ptr<DeviceMemory> memory;  ///< page-locked or the host's; null: whatever there is
  bool is_page_locked = false;
  std::string reason;  ///< why it is not, where it could have been
};
/// By --pin-memory, for batches of `bytes` in all on each of `ranks` of this host: page-locked
/// where available memory and the limit of locked memory allow it. std::runtime_error where `on`
/// cannot be had.
BatchMemory choose_batch_memory(PinMemory pin, int gpu, std::size_t bytes, std::size_t ranks);

/// Seconds that a batch takes to a GPU, medians; what could not be measured is 0.
struct CopyTimes {
  double pageable = 0, page_locked = 0;
};
/// A table of them, for batches of `bytes`.
std::string copies_text(const CopyTimes& times, std::size_t bytes, bool takes_page_locked,
                        const std::string& reason);
CopyTimes measure_copies(int gpu, const Shape& batch);

}  // namespace unisono::train
