#include "unisono/train/sync_batch_norm.h"

namespace unisono::train {

SyncBatchNormExchange::SyncBatchNormExchange(Communicator& communicator, CallOptions options)
    : communicator_(communicator.duplicate()), options_(options) {}

void SyncBatchNormExchange::all_gather(std::span<const float> mine, std::span<float> all) {
  communicator_.all_gather(mine, all, options_);
}

void SyncBatchNormExchange::all_reduce_sum(std::span<float> values) {
  communicator_.all_reduce(values, ops::sum, options_);
}

}  // namespace unisono::train
