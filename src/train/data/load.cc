// Three ways from a source to a data set in memory.
#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/signals_blocked.h"
#include "train/data/exchange.h"
#include "train/data/lazy.h"
#include "train/data/records.h"
#include "unisono/train/loader.h"

namespace unisono::train {

namespace {

class MemoryDataset : public LoadedDataset {
 public:
  MemoryDataset(std::shared_ptr<const SampleSource> source, Records records, LoadReport report)
      : source_(std::move(source)), records_(std::move(records)), report_(report) {}

  std::size_t size() const override { return records_.size(); }
  int classes() const override { return source_->classes(); }
  Shape input_shape() const override { return source_->input_shape(); }
  std::size_t targets_per_sample() const override { return source_->targets_per_sample(); }
  void read(std::size_t index, std::span<float> input,
            std::span<std::int32_t> targets) const override {
    source_->decode(at(index), input, targets);
  }
  std::size_t length(std::size_t index) const override { return source_->length(at(index)); }
  std::string describe() const override {
    if (size() == source_->size()) return source_->describe();
    return std::to_string(size()) + " of " + source_->describe();
  }
  LoadReport report() const override { return report_; }

 private:
  SampleSource::Record at(std::size_t index) const {
    if (index >= size()) {
      throw std::out_of_range("sample " + std::to_string(index) + " asked of " + describe());
    }
    return records_[index];
  }

  std::shared_ptr<const SampleSource> source_;
  Records records_;
  LoadReport report_;
};

// Reads one range, with any number of threads; what they share is here.
class RangeReader {
 public:
  RangeReader(const SampleSource& source, const LoadOptions& options, LoadRange range)
      : source_(source), options_(options), range_(range) {}

  Records read(int threads);
  std::size_t peak_bytes() const { return peak_bytes_; }

 private:
  Records read_part(LoadRange range);
  Records join(std::vector<Records>& parts);
  void count_progress();

  const SampleSource& source_;
  const LoadOptions& options_;
  LoadRange range_;
  std::mutex mutex_;
  std::size_t done_ = 0, peak_bytes_ = 0;
};

void RangeReader::count_progress() {
  if (!options_.progress) return;
  const std::lock_guard lock(mutex_);
  const std::size_t total = range_.end - range_.begin;
  ++done_;
  if (done_ == total || done_ % std::max<std::size_t>(1, total / 100) == 0) {
    options_.progress({.done = done_, .total = total});
  }
}

Records RangeReader::read_part(LoadRange range) {
  std::vector<std::size_t> indices(range.end - range.begin);
  std::iota(indices.begin(), indices.end(), range.begin);
  Records records;
  if (!options_.keep) records.reserve(indices.size(), source_);
  source_.load(indices, [&](std::size_t index, SampleSource::Record record) {
    if (!options_.keep || options_.keep(index, record)) records.add(record);
    count_progress();
  });
  return records;
}

Records RangeReader::read(int threads) {
  const std::size_t total = range_.end - range_.begin;
  const auto count = std::clamp<std::size_t>(source_.is_seekable() ? threads : 1, 1,
                                             std::max<std::size_t>(total, 1));
  std::vector<Records> parts(count);
  std::vector<std::exception_ptr> failures(count);
  const auto read_share = [&](std::size_t t) {
    try {
      parts[t] = read_part({.begin = range_.begin + total * t / count,
                            .end = range_.begin + total * (t + 1) / count});
    } catch (...) {
      failures[t] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    {
      const SignalsBlocked blocked;
      for (std::size_t t = 1; t < count; ++t) pool.emplace_back(read_share, t);
    }
    read_share(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  for (const Records& part : parts) peak_bytes_ += part.held_bytes();
  return count == 1 ? std::move(parts[0]) : join(parts);
}

// End to end, letting go of each part once it is copied.
Records RangeReader::join(std::vector<Records>& parts) {
  std::size_t bytes = 0, samples = 0;
  for (const Records& part : parts) {
    bytes += part.bytes.size();
    samples += part.size();
  }
  Records all;
  all.bytes.reserve(bytes);
  all.ends.reserve(samples);
  peak_bytes_ += all.held_bytes();
  for (Records& each : parts) {
    const Records part = std::exchange(each, {});
    for (std::size_t i = 0; i < part.size(); ++i) all.add(part[i]);
  }
  return all;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::unique_ptr<LoadedDataset> load_local(std::shared_ptr<const SampleSource> source,
                                          const LoadOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  RangeReader reader(*source, options, {.begin = 0, .end = source->size()});
  Records records = reader.read(options.threads);
  const LoadReport report{.mode = LoadMode::kLocal,
                          .samples = records.size(),
                          .read = source->size(),
                          .held_bytes = records.held_bytes(),
                          .peak_bytes = reader.peak_bytes(),
                          .seconds = seconds_since(begin)};
  return std::make_unique<MemoryDataset>(std::move(source), std::move(records), report);
}

// A rank that cannot read still takes part until all know it.
std::unique_ptr<LoadedDataset> load_gather(std::shared_ptr<const SampleSource> source,
                                           Communicator& communicator, const LoadOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const LoadRange range = load_range(source->size(), place_in(communicator));
  RangeReader reader(*source, options, range);
  Records mine;
  std::vector<std::uint32_t> lengths;
  agree_on_success(communicator, failure_of([&] {
                     mine = reader.read(options.threads);
                     lengths = lengths_of(mine);
                   }));
  agree_on_source(communicator, *source);
  LoadReport report{.mode = LoadMode::kGather,
                    .read = range.end - range.begin,
                    .peak_bytes = reader.peak_bytes()};
  if (communicator.size() > 1) {
    Records all = gather_records(communicator, mine, lengths, *source, options.staging_bytes);
    // The lengths that travel apart are 4 bytes per sample, of mine and of all.
    report.peak_bytes = std::max(
        report.peak_bytes, mine.held_bytes() + all.held_bytes() + 4 * (mine.size() + all.size()));
    report.received_bytes = all.bytes.size() - mine.bytes.size();
    mine = std::move(all);
  }
  report.samples = mine.size();
  report.held_bytes = mine.held_bytes();
  report.seconds = seconds_since(begin);
  return std::make_unique<MemoryDataset>(std::move(source), std::move(mine), report);
}

void check_options(const SampleSource* source, const Communicator* communicator,
                   const LoadOptions& options) {
  if (source == nullptr) throw std::invalid_argument("there is no source to load");
  if (options.threads < 1) {
    throw std::invalid_argument(std::to_string(options.threads) +
                                " threads cannot load anything; choose 1 or more");
  }
  if (options.mode == LoadMode::kLazy && options.sort_batches) {
    throw std::invalid_argument(
        "batches cannot be sorted by length with lazy loading: a rank reads only its own samples "
        "and does not know how long the others are; load with gather or local");
  }
  if (options.mode == LoadMode::kLazy && options.keep) {
    throw std::invalid_argument(
        "samples cannot be filtered with lazy loading: which are left is known only when all have "
        "been read; load with gather or local");
  }
  if (options.mode == LoadMode::kGather && (communicator == nullptr || communicator->empty())) {
    throw std::invalid_argument(
        "loading with gather needs a communicator of the ranks; load with local or lazy");
  }
}

}  // namespace

std::string_view name_of(LoadMode mode) {
  switch (mode) {
    case LoadMode::kGather:
      return "gather";
    case LoadMode::kLocal:
      return "local";
    case LoadMode::kLazy:
      return "lazy";
  }
  return "unknown";
}

bool parse(std::string_view text, LoadMode* mode) {
  for (const LoadMode each : {LoadMode::kGather, LoadMode::kLocal, LoadMode::kLazy}) {
    if (text != name_of(each)) continue;
    *mode = each;
    return true;
  }
  return false;
}

LoadRange load_range(std::size_t samples, RankPlace place) {
  if (place.ranks < 1 || place.rank < 0 || place.rank >= place.ranks) {
    throw std::invalid_argument("rank " + std::to_string(place.rank) + " of " +
                                std::to_string(place.ranks) + " ranks has no samples to load");
  }
  const std::size_t part = samples / static_cast<std::size_t>(place.ranks) + 1;
  const std::size_t begin = std::min(static_cast<std::size_t>(place.rank) * part, samples);
  const bool is_last = place.rank == place.ranks - 1;
  return {.begin = begin, .end = is_last ? samples : std::min(begin + part, samples)};
}

std::unique_ptr<LoadedDataset> load(std::shared_ptr<const SampleSource> source,
                                    Communicator* communicator, const LoadOptions& options) {
  check_options(source.get(), communicator, options);
  // With gather they do when all have read.
  if (options.mode != LoadMode::kGather && communicator != nullptr && !communicator->empty()) {
    agree_on_source(*communicator, *source);
  }
  switch (options.mode) {
    case LoadMode::kGather:
      return load_gather(std::move(source), *communicator, options);
    case LoadMode::kLocal:
      return load_local(std::move(source), options);
    case LoadMode::kLazy:
      return make_lazy(std::move(source), options);
  }
  throw std::invalid_argument("there is no such way to load");
}

}  // namespace unisono::train
