#include "train/data/lazy.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>

#include "train/data/records.h"

namespace unisono::train {

namespace {

class LazyDataset : public LoadedDataset {
 public:
  LazyDataset(std::shared_ptr<const SampleSource> source,
              std::function<void(LoadProgress)> progress)
      : source_(std::move(source)), progress_(std::move(progress)) {
    report_.mode = LoadMode::kLazy;
    report_.samples = source_->size();
  }

  std::size_t size() const override { return source_->size(); }
  int classes() const override { return source_->classes(); }
  Shape input_shape() const override { return source_->input_shape(); }
  std::size_t targets_per_sample() const override { return source_->targets_per_sample(); }
  void read(std::size_t index, std::span<float> input,
            std::span<std::int32_t> targets) const override {
    source_->decode(at(index), input, targets);
  }
  std::size_t length(std::size_t index) const override { return source_->length(at(index)); }
  std::string describe() const override { return source_->describe(); }
  void prepare(std::span<const std::size_t> indices) override;
  LoadReport report() const override { return report_; }

 private:
  SampleSource::Record at(std::size_t index) const;
  void read_held();

  std::shared_ptr<const SampleSource> source_;
  std::function<void(LoadProgress)> progress_;
  std::vector<std::size_t> held_;  ///< ascending; records_[i] is sample held_[i]
  Records records_;
  LoadReport report_;
};

void LazyDataset::prepare(std::span<const std::size_t> indices) {
  std::vector<std::size_t> wanted(indices.begin(), indices.end());
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  if (wanted == held_) return;
  const auto begin = std::chrono::steady_clock::now();
  // What was held goes first, so that never two epochs' samples are held.
  records_ = {};
  held_ = std::move(wanted);
  try {
    read_held();
  } catch (...) {
    held_.clear();
    records_ = {};
    throw;
  }
  report_.read += held_.size();
  report_.held_bytes = records_.held_bytes() + held_.capacity() * sizeof(std::size_t);
  report_.peak_bytes = std::max(report_.peak_bytes, report_.held_bytes);
  report_.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void LazyDataset::read_held() {
  records_.reserve(held_.size(), *source_);
  const std::size_t part = std::max<std::size_t>(1, held_.size() / 100);
  source_->load(held_, [&](std::size_t, SampleSource::Record record) {
    records_.add(record);
    const std::size_t done = records_.size();
    if (progress_ && (done == held_.size() || done % part == 0)) {
      progress_({.done = done, .total = held_.size()});
    }
  });
}

SampleSource::Record LazyDataset::at(std::size_t index) const {
  const auto place = std::lower_bound(held_.begin(), held_.end(), index);
  if (place == held_.end() || *place != index) {
    throw std::out_of_range(
        "sample " + std::to_string(index) + " of " + describe() +
        " is not held: lazy loading reads only the samples that this rank has prepared; load with "
        "gather or local for what needs all of them");
  }
  return records_[static_cast<std::size_t>(place - held_.begin())];
}

}  // namespace

std::unique_ptr<LoadedDataset> make_lazy(std::shared_ptr<const SampleSource> source,
                                         const LoadOptions& options) {
  return std::make_unique<LazyDataset>(std::move(source), options.progress);
}

}  // namespace unisono::train
