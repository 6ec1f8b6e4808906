// The buckets of one replica: memory that gradients are copied into, when each bucket is full, and
// its reduction. Knows nothing of why a gradient is there or not.
//
// Owned by DistributedDataParallel; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "train/ddp/bucket_layout.h"
#include "train/ddp/communication_buffer.h"
#include "unisono/train/distributed_data_parallel.h"

namespace unisono::train {

class GradientBuckets {
 public:
  GradientBuckets(Model& model, Communicator& communicator, const DdpOptions& options);

  /// Between passes. Parameters in no bucket are not communicated.
  void lay_out(BucketLayout layout);
  const BucketLayout& layout() const { return layout_; }

  /// A synchronised pass begins: nothing is there. Gradients are to be multiplied by `factor`.
  void begin(float factor);
  enum class Place { kOpen, kTaken, kNowhere };
  /// Whether the parameter's gradient is still to come, is there, or has no bucket.
  Place place(int parameter) const;
  /// The parameter's gradient as it is in the model now, or zeros. Only where place() is kOpen.
  void put(int parameter);
  void put_zeros(int parameter);
  void put_zeros_everywhere();
  /// Parameters whose gradient is still to come.
  std::vector<int> missing() const;

  /// Starts the buckets that are full, strictly in index order: one waits for its predecessors.
  void start_full();
  /// Once all have started: waits for all and copies the results of the parameters whose entry in
  /// `wanted` is not 0 into the model's gradients.
  void finish(std::span<const std::uint8_t> wanted);

  DistributedDataParallel::Progress progress();

 private:
  struct Bucket {
    std::size_t offset = 0, count = 0;  // elements of memory_
    std::size_t missing = 0;            // parameters
    std::unique_ptr<CommunicationHook::Reduction> reduction;
  };
  struct Home {
    int bucket = -1;
    std::size_t offset = 0;
    bool taken = false;
  };
  /// Where gradients and buckets lie.
  Backend& backend() const;
  std::span<float> slot(int parameter);
  void take(int parameter);

  Model& model_;
  Communicator& communicator_;
  CallOptions call_;
  std::shared_ptr<CommunicationHook> hook_;
  bool scales_here_;  // and not in the hook
  float factor_ = 1.0F;
  BucketLayout layout_;
  std::vector<Home> homes_;
  std::unique_ptr<CommunicationBuffer<float>> memory_;
  std::vector<Bucket> buckets_;  // after the memory, which is lent to their reductions
  std::size_t next_ = 0;
};

}  // namespace unisono::train
