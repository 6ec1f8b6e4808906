// Which samples a rank takes in an epoch, and in which order.
//
// All samplers are functions of (samples, ranks, rank, seed, epoch) alone: ranks agree without
// talking. Threads: like std::vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/train/data.h"

namespace unisono::train {

/// 0 .. count - 1 shuffled: Fisher and Yates from the front with mt19937(seed), the low 32 bits of
/// it, and remainders. PyTorch's randperm on a CPU gives the same order.
std::vector<std::size_t> random_permutation(std::size_t count, std::uint64_t seed);

class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Indices per epoch.
  virtual std::size_t size() const = 0;
  /// Without it every epoch has the order of epoch 0.
  virtual void set_epoch(std::uint64_t epoch) = 0;
  virtual std::vector<std::size_t> indices() const = 0;
};

/// Rank `rank` of `ranks`.
struct RankPlace {
  int ranks = 1, rank = 0;
};

/// PyTorch's DistributedSampler: every rank gets equally many samples, rank, rank + ranks, ... of
/// the order, which is padded by beginning it anew as often as it takes (3 samples on 8 ranks, not
/// shuffled: 0 1 2 0 1 2 0 1) or, with drop_last, cut.
struct DistributedSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;
};
class DistributedSampler : public Sampler {
 public:
  /// std::invalid_argument when there are no samples, or none is left for a rank by drop_last.
  DistributedSampler(std::size_t samples, RankPlace place, DistributedSamplerOptions options = {});
  std::size_t size() const override { return per_rank_; }
  void set_epoch(std::uint64_t epoch) override { epoch_ = epoch; }
  std::vector<std::size_t> indices() const override;

 private:
  std::size_t samples_, per_rank_;
  RankPlace place_;
  DistributedSamplerOptions options_;
  std::uint64_t epoch_ = 0;
};

/// rank, rank + ranks, ... below `samples`: every sample exactly once, so lengths differ by one and
/// may be 0. gather_in_order() of loader.h puts the results together again.
class EvaluationSampler : public Sampler {
 public:
  EvaluationSampler(std::size_t samples, RankPlace place);
  std::size_t size() const override;
  void set_epoch(std::uint64_t) override {}
  std::vector<std::size_t> indices() const override;

 private:
  std::size_t samples_;
  RankPlace place_;
};

/// Every step takes `micro_batches` micro-batches of `micro_batch_samples`, the same ones on any
/// number of ranks; rank r works on the r-th contiguous block of them. What does not fill a step is
/// left out.
struct MicroBatchOptions {
  std::size_t micro_batches = 8;
  std::size_t micro_batch_samples = 8;
  bool shuffle = true;
  std::uint64_t seed = 0;
};
struct MicroBatch {
  std::size_t id = 0;  ///< 0 .. micro_batches - 1
  std::vector<std::size_t> indices;
};
class GlobalMicroBatchSampler : public Sampler {
 public:
  /// std::invalid_argument when the micro-batches do not divide by the ranks, or not even one step
  /// is filled.
  GlobalMicroBatchSampler(std::size_t samples, RankPlace place, MicroBatchOptions options = {});
  std::size_t steps() const { return steps_; }
  std::size_t micro_batches_per_rank() const { return per_rank_; }
  /// The id of this rank's first micro-batch in every step.
  std::size_t first_micro_batch() const;
  /// This rank's micro-batches of a step.
  std::vector<MicroBatch> step(std::size_t step) const;

  /// All of step(0), step(1), ... end to end: cut into batches of micro_batch_samples, batch b is
  /// micro-batch first_micro_batch() + b % micro_batches_per_rank().
  std::vector<std::size_t> indices() const override;
  std::size_t size() const override;
  void set_epoch(std::uint64_t epoch) override;

 private:
  std::size_t samples_, per_rank_, steps_;
  RankPlace place_;
  MicroBatchOptions options_;
  std::vector<std::size_t> order_;  ///< of this epoch, all ranks'
};

/// Batches of samples of like length, for text with padding: all samples sorted by length are cut
/// into global batches, these are shuffled, and each is dealt to the ranks one sample at a time, so
/// that in every step all ranks work on the same lengths. Padded by the longest; or, with
/// drop_last, what fills no batch of all ranks comes last: where they are shuffled, other
/// neighbours in every epoch. Needs the length of every sample, which a lazy data set does not know
/// and refuses.
struct SortedBatchOptions {
  std::size_t batch_samples = 32;  ///< per rank
  bool shuffle = true;
  std::uint64_t seed = 0;
  bool drop_last = false;
};
class SortedBatchSampler : public Sampler {
 public:
  SortedBatchSampler(const Dataset& data, RankPlace place, SortedBatchOptions options = {});
  std::size_t size() const override { return per_rank_; }
  void set_epoch(std::uint64_t epoch) override { epoch_ = epoch; }
  std::vector<std::size_t> indices() const override;

 private:
  std::vector<std::size_t> sorted(std::size_t full_batches) const;

  std::size_t per_rank_ = 0;
  RankPlace place_;
  SortedBatchOptions options_;
  std::vector<std::size_t> by_length_;
  std::uint64_t epoch_ = 0;
};

/// `indices` in batches of `batch_samples`; the last may be shorter, or is left out. A batch of no
/// samples throws std::invalid_argument.
std::vector<std::vector<std::size_t>> cut_batches(std::span<const std::size_t> indices,
                                                  std::size_t batch_samples,
                                                  bool drop_last = false);

}  // namespace unisono::train
