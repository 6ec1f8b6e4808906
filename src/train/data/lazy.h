// Samples that are read when an epoch begins, and only the rank's own. Threads: as Dataset.
#pragma once

#include <memory>

#include "unisono/train/loader.h"

namespace unisono::train {

std::unique_ptr<LoadedDataset> make_lazy(std::shared_ptr<const SampleSource> source,
                                         const LoadOptions& options);

}  // namespace unisono::train
