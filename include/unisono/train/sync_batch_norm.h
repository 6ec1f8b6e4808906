// SyncBatchNormExchange: batch norms over the batches of all ranks.
//
// Set it as Pass::statistics and every batch norm of the model normalises with the statistics of
// the global batch, forward and backward. It talks over a duplicate of the communicator: a batch
// norm's backward sums may pass gradient buckets that are still on their way.
#pragma once

#include <span>
#include <string>

#include "unisono/communicator.h"
#include "unisono/train/model.h"

namespace unisono::train {

class SyncBatchNormExchange : public StatisticsExchange {
 public:
  /// Collective. With Order::kCanonical the sums are the same for any algorithm and transport.
  explicit SyncBatchNormExchange(Communicator& communicator, CallOptions options = {});

  int ranks() const override { return communicator_.size(); }
  void all_gather(std::span<const float> mine, std::span<float> all) override;
  void all_reduce_sum(std::span<float> values) override;
  Status status() const override { return communicator_.status(); }
  void abort(const std::string& reason, Rank failed_rank) override {
    communicator_.abort(reason, failed_rank);
  }

  /// What the statistics go over, for counting.
  Communicator& communicator() { return communicator_; }

 private:
  Communicator communicator_;
  CallOptions options_;
};

}  // namespace unisono::train
