// From files to batches: load() brings a source's samples to the ranks, a Loader prepares batches
// of them ahead of the training loop, gather_in_order() collects what an evaluation found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "unisono/communicator.h"
#include "unisono/train/data.h"
#include "unisono/train/sampler.h"

namespace unisono::train {

/// How samples come to a rank.
enum class LoadMode : std::uint8_t {
  kGather,  ///< each rank reads its part of the files, then all get all: every file is read once
  kLocal,   ///< each rank reads everything, with threads
  kLazy,    ///< each rank reads the samples of the coming epoch that are its own
};
/// "gather", "local", "lazy".
std::string_view name_of(LoadMode mode);
/// Inverse of name_of; false when unknown.
bool parse(std::string_view text, LoadMode* mode);

/// The samples that a rank reads in kGather.
struct LoadRange {
  std::size_t begin = 0, end = 0;
};
/// Parts of samples / ranks + 1, the last to the end; a part that would begin past the end is empty
/// (8 samples on 4 ranks: 3, 3, 2, 0). Throws std::invalid_argument for a rank that is none.
LoadRange load_range(std::size_t samples, RankPlace place);

struct LoadProgress {
  std::size_t done = 0, total = 0;  ///< samples that this rank reads
};

struct LoadOptions {
  LoadMode mode = LoadMode::kGather;
  /// Batches will be sorted by length: refused with kLazy.
  bool sort_batches = false;
  /// Samples for which it says no are left out; the others are numbered anew. Called by any of the
  /// loading threads. Refused with kLazy, where ranks would not agree on how many are left.
  std::function<bool(std::size_t index, SampleSource::Record record)> keep{};
  /// kGather and kLocal: threads that read a seekable source.
  int threads = 1;
  /// kGather: staging memory of the exchange, as ObjectOptions::staging_bytes.
  std::size_t staging_bytes = std::size_t{4} << 20;
  /// About every hundredth of the way and at the end; one call at a time.
  std::function<void(LoadProgress)> progress{};
};

/// What loading has cost this rank. Bytes are those of samples and their bookkeeping, counted, so
/// that ranks in one process are told apart.
struct LoadReport {
  LoadMode mode = LoadMode::kGather;
  std::size_t samples = 0;  ///< in the data set
  std::size_t read = 0;     ///< from files by this rank, so far
  std::size_t held_bytes = 0, peak_bytes = 0;
  std::size_t received_bytes = 0;  ///< from other ranks
  double seconds = 0;
};

class LoadedDataset : public Dataset {
 public:
  /// Of a lazy data set it grows with every prepare().
  virtual LoadReport report() const = 0;
};

/// Collective: throws std::runtime_error on all ranks where one sees another data set than rank 0.
/// With kLocal and kLazy that is all that ranks tell each other, and `communicator` may be null,
/// for a rank by itself. When one rank fails to read, kGather throws on all and names it.
/// std::invalid_argument for options that do not go together.
std::unique_ptr<LoadedDataset> load(std::shared_ptr<const SampleSource> source,
                                    Communicator* communicator, const LoadOptions& options);

struct LoaderOptions {
  std::size_t batch_samples = 32;
  bool drop_last = false;
  /// Without a sampler: all samples in the order of random_permutation(seed + epoch).
  bool shuffle = false;
  std::uint64_t seed = 0;
  /// Threads that prepare batches ahead; 0: next() makes them itself.
  int workers = 0;
  /// Batches per worker that may lie ready or be in the making.
  std::size_t ahead = 2;
  /// Where the inputs of batches are put, of kHost or kPageLocked, also by workers; outlives the
  /// loader and its batches' makers. Null: the calling thread's host memory, of workers nobody's.
  DeviceMemory* memory = nullptr;
};

/// Batches of an epoch, in order, made ahead by `workers` threads. One thread uses it; the data set
/// must outlive it and keeps its samples between begin() and the last next(). Batches of workers
/// are charged to no device.
///
///   Loader loader(*data, sampler, {.batch_samples = 64, .workers = 2});
///   loader.begin(epoch);
///   while (std::optional<Batch> batch = loader.next()) ...
class Loader {
 public:
  Loader(Dataset& data, LoaderOptions options);
  /// `sampler` must outlive it too. A sampler decides the order: `shuffle` besides it throws
  /// std::invalid_argument.
  Loader(Dataset& data, Sampler& sampler, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Of an epoch.
  std::size_t batches() const;
  /// Leaves the epoch under way, sets the sampler's epoch and prepares the data set. `first_batch`:
  /// resumes in the middle.
  void begin(std::uint64_t epoch, std::size_t first_batch = 0);
  /// None: the epoch is over. What a worker threw comes out where its batch would have.
  std::optional<Batch> next();

 private:
  class Workers;
  std::vector<std::size_t> epoch_indices(std::uint64_t epoch);

  Dataset& data_;
  Sampler* sampler_ = nullptr;
  LoaderOptions options_;
  std::vector<std::vector<std::size_t>> plan_;
  std::size_t next_ = 0;
  std::unique_ptr<Workers> workers_;
};

/// Puts results of an evaluation together, each exactly once: result i of rank r is of sample
/// r + i * ranks, as both EvaluationSampler and DistributedSampler (not shuffled) deal them.
/// Collective; every rank gets all `total`. Ranks may have different lengths, and more than their
/// share: what is padding is left out. A rank with less than its share throws std::invalid_argument
/// on all. `out` has room for `total` elements.
void gather_in_order(Communicator& communicator, const void* mine, std::size_t count, DataType type,
                     std::size_t total, void* out);

template <Element T>
std::vector<T> gather_in_order(Communicator& communicator, const std::vector<T>& mine,
                               std::size_t total) {
  std::vector<T> all(total);
  gather_in_order(communicator, mine.data(), mine.size(), data_type_of<T>, total, all.data());
  return all;
}
std::vector<bool> gather_in_order(Communicator& communicator, const std::vector<bool>& mine,
                                  std::size_t total);

}  // namespace unisono::train
