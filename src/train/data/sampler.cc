#include "unisono/train/sampler.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

namespace unisono::train {

namespace {

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  return indices;
}

void check_place(std::size_t samples, RankPlace place) {
  if (place.ranks < 1 || place.rank < 0 || place.rank >= place.ranks) {
    throw std::invalid_argument("rank " + std::to_string(place.rank) + " of " +
                                std::to_string(place.ranks) + " is no rank");
  }
  if (samples == 0) throw std::invalid_argument("a data set of no samples cannot be sampled");
}

// How many samples each rank gets when `samples` are padded or cut to equal shares.
std::size_t equal_share(std::size_t samples, RankPlace place, bool drop_last) {
  check_place(samples, place);
  const auto ranks = static_cast<std::size_t>(place.ranks);
  if (!drop_last) return samples / ranks + (samples % ranks == 0 ? 0 : 1);
  if (samples < ranks) {
    throw std::invalid_argument(std::to_string(samples) + " samples on " + std::to_string(ranks) +
                                " ranks leave none for each after drop_last; use at most " +
                                std::to_string(samples) + " ranks or keep the last");
  }
  return samples / ranks;
}

// Every ranks-th position below `total`, going round where the order is shorter.
std::vector<std::size_t> strided(const std::vector<std::size_t>& order, RankPlace place,
                                 std::size_t total) {
  std::vector<std::size_t> mine;
  const auto ranks = static_cast<std::size_t>(place.ranks);
  mine.reserve(total / ranks + 1);
  for (auto i = static_cast<std::size_t>(place.rank); i < total; i += ranks) {
    mine.push_back(order[i % order.size()]);
  }
  return mine;
}

}  // namespace

std::vector<std::size_t> random_permutation(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order = in_order(count);
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  for (std::size_t i = 0; i + 1 < count; ++i) {
    std::swap(order[i], order[i + generator() % (count - i)]);
  }
  return order;
}

DistributedSampler::DistributedSampler(std::size_t samples, RankPlace place,
                                       DistributedSamplerOptions options)
    : samples_(samples),
      per_rank_(equal_share(samples, place, options.drop_last)),
      place_(place),
      options_(options) {}

std::vector<std::size_t> DistributedSampler::indices() const {
  const std::vector<std::size_t> order =
      options_.shuffle ? random_permutation(samples_, options_.seed + epoch_) : in_order(samples_);
  return strided(order, place_, per_rank_ * static_cast<std::size_t>(place_.ranks));
}

EvaluationSampler::EvaluationSampler(std::size_t samples, RankPlace place)
    : samples_(samples), place_(place) {
  check_place(samples, place);
}

std::size_t EvaluationSampler::size() const {
  const auto ranks = static_cast<std::size_t>(place_.ranks);
  return samples_ / ranks + (static_cast<std::size_t>(place_.rank) < samples_ % ranks ? 1 : 0);
}

std::vector<std::size_t> EvaluationSampler::indices() const {
  return strided(in_order(samples_), place_, samples_);
}

GlobalMicroBatchSampler::GlobalMicroBatchSampler(std::size_t samples, RankPlace place,
                                                 MicroBatchOptions options)
    : samples_(samples), place_(place), options_(options) {
  check_place(samples, place);
  const std::size_t micro_batches = options.micro_batches;
  const auto ranks = static_cast<std::size_t>(place.ranks);
  if (micro_batches == 0 || micro_batches % ranks != 0) {
    throw std::invalid_argument(
        std::to_string(micro_batches) + " micro-batches cannot be dealt evenly to " +
        std::to_string(ranks) + " ranks; their number must be a multiple of the ranks");
  }
  per_rank_ = micro_batches / ranks;
  if (options.micro_batch_samples == 0) {
    throw std::invalid_argument("a micro-batch of no samples cannot be trained on");
  }
  steps_ = samples / micro_batches / options.micro_batch_samples;
  if (steps_ == 0) {
    throw std::invalid_argument(std::to_string(samples) + " samples do not fill one step of " +
                                std::to_string(micro_batches) + " micro-batches of " +
                                std::to_string(options.micro_batch_samples) + " samples");
  }
  set_epoch(0);
}

std::size_t GlobalMicroBatchSampler::first_micro_batch() const {
  return static_cast<std::size_t>(place_.rank) * per_rank_;
}

std::size_t GlobalMicroBatchSampler::size() const {
  return steps_ * per_rank_ * options_.micro_batch_samples;
}

void GlobalMicroBatchSampler::set_epoch(std::uint64_t epoch) {
  order_ =
      options_.shuffle ? random_permutation(samples_, options_.seed + epoch) : in_order(samples_);
}

std::vector<MicroBatch> GlobalMicroBatchSampler::step(std::size_t step) const {
  if (step >= steps_) {
    throw std::out_of_range("step " + std::to_string(step) + " of an epoch of " +
                            std::to_string(steps_));
  }
  std::vector<MicroBatch> mine;
  for (std::size_t id = first_micro_batch(); id < first_micro_batch() + per_rank_; ++id) {
    const auto begin =
        order_.begin() + static_cast<std::ptrdiff_t>((step * options_.micro_batches + id) *
                                                     options_.micro_batch_samples);
    mine.push_back(
        {.id = id,
         .indices = {begin, begin + static_cast<std::ptrdiff_t>(options_.micro_batch_samples)}});
  }
  return mine;
}

std::vector<std::size_t> GlobalMicroBatchSampler::indices() const {
  std::vector<std::size_t> all;
  all.reserve(size());
  for (std::size_t s = 0; s < steps_; ++s) {
    for (const MicroBatch& each : step(s)) {
      all.insert(all.end(), each.indices.begin(), each.indices.end());
    }
  }
  return all;
}

SortedBatchSampler::SortedBatchSampler(const Dataset& data, RankPlace place,
                                       SortedBatchOptions options)
    : per_rank_(equal_share(data.size(), place, options.drop_last)),
      place_(place),
      options_(options) {
  if (options.batch_samples == 0) {
    throw std::invalid_argument("a batch of no samples cannot be trained on");
  }
  std::vector<std::size_t> lengths(data.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = data.length(i);
  by_length_ = in_order(lengths.size());
  std::stable_sort(by_length_.begin(), by_length_.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
  // Padding repeats the longest, whose batch it joins.
  const std::size_t total = per_rank_ * static_cast<std::size_t>(place_.ranks);
  if (total > by_length_.size()) by_length_.resize(total, by_length_.back());
}

// What fills no batch of all ranks comes last, to be dropped: any neighbours, since in every epoch
// the longest would never be trained on.
std::vector<std::size_t> SortedBatchSampler::sorted(std::size_t full_batches) const {
  std::vector<std::size_t> samples = by_length_;
  if (!options_.drop_last || !options_.shuffle) return samples;
  const std::size_t batch = options_.batch_samples * static_cast<std::size_t>(place_.ranks);
  const std::size_t rest = samples.size() - full_batches * batch;
  std::mt19937 generator(static_cast<std::uint32_t>(options_.seed + epoch_));
  const auto first =
      samples.begin() + static_cast<std::ptrdiff_t>(generator() % (samples.size() - rest + 1));
  std::rotate(first, first + static_cast<std::ptrdiff_t>(rest), samples.end());
  return samples;
}

std::vector<std::size_t> SortedBatchSampler::indices() const {
  // A batch that is not full stays the last, so that the others begin at multiples.
  const std::size_t full = per_rank_ / options_.batch_samples;
  std::vector<std::size_t> order =
      options_.shuffle ? random_permutation(full, options_.seed + epoch_) : in_order(full);
  if (per_rank_ % options_.batch_samples != 0) order.push_back(full);
  const auto ranks = static_cast<std::size_t>(place_.ranks);
  const std::vector<std::size_t> samples = sorted(full);
  std::vector<std::size_t> mine;
  mine.reserve(per_rank_);
  for (const std::size_t batch : order) {
    const std::size_t end = std::min(per_rank_, (batch + 1) * options_.batch_samples);
    for (std::size_t i = batch * options_.batch_samples; i < end; ++i) {
      mine.push_back(samples[i * ranks + static_cast<std::size_t>(place_.rank)]);
    }
  }
  return mine;
}

std::vector<std::vector<std::size_t>> cut_batches(std::span<const std::size_t> indices,
                                                  std::size_t batch_samples, bool drop_last) {
  if (batch_samples == 0) {
    throw std::invalid_argument("a batch of no samples cannot be made; choose 1 or more");
  }
  std::vector<std::vector<std::size_t>> batches;
  for (; !indices.empty(); indices = indices.subspan(batches.back().size())) {
    const std::size_t part = std::min(batch_samples, indices.size());
    if (drop_last && part < batch_samples) break;
    batches.emplace_back(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(part));
  }
  return batches;
}

}  // namespace unisono::train
