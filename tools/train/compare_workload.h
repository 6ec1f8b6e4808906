// What a comparison trains: the same model, the same batches in the same order, for every strategy.
//
// A value; safe to read from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/train/options.h"
#include "tools/train/traffic_formulas.h"
#include "unisono/train/data.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::train::comparison {

struct Workload {
  std::function<std::unique_ptr<Model>()> make_model;  ///< the same values each time; any thread
  OptimizerFactory make_optimizer;
  /// Of all devices together, used in turn; all have the same number of samples.
  std::vector<Batch> batches;
  std::string data;                ///< for people
  std::uint64_t loaded_bytes = 0;  ///< samples that came from other ranks
  int devices = 2;                 ///< of one process, and ranks
  std::vector<int> gpus;           ///< as DataParallelOptions::gpus, of ranks too
  std::size_t first_batch = 0;     ///< dp-balanced: samples of the first device
  std::string transport;           ///< of the ranks; empty: the default
  float rate = 1e-3F;

  std::size_t samples() const { return batches.front().samples(); }
  const Batch& batch(std::size_t step) const { return batches[step % batches.size()]; }
};

/// std::invalid_argument for what cannot be compared: fewer than 2 devices or more than samples, no
/// batch, a first batch that balanced chunks cannot have. Returns what there is to say about these.
std::vector<std::string> check(const Workload& workload);

ModelSize measure_size(const Workload& workload);

/// What a rank computes in.
DeviceMemory memory_of_rank(const Workload& workload, int rank);

/// Three quarters of an even share: what the first device takes where nobody says.
std::size_t default_first_batch(std::size_t samples, int devices);

/// Samples [first, first + count) of a batch.
Batch slice(const Batch& batch, std::size_t first, std::size_t count);

/// At most `count` batches of `samples` from `source`, in an order that the seed decides; fewer
/// where the source has not so many. Fills batches, data and loaded_bytes.
void load_batches(std::shared_ptr<const SampleSource> source, std::size_t samples,
                  std::size_t count, std::uint64_t seed, Workload* workload);

/// Images of 10 classes made up of the seed.
void make_up_batches(const Shape& image, std::size_t samples, std::size_t count, std::uint64_t seed,
                     Workload* workload);

/// The same with the model of the options, cnn or else mlp, for machines without a data set.
std::unique_ptr<Model> make_up_problem(const Options& options, std::size_t count,
                                       Workload* workload);

}  // namespace unisono::train::comparison
