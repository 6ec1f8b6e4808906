#include "train/ddp/gradient_buckets.h"

#include <algorithm>
#include <utility>

namespace unisono::train {
namespace {

constexpr std::size_t kLineFloats = 64 / sizeof(float);

std::size_t whole_lines(std::size_t count) {
  return (count + kLineFloats - 1) / kLineFloats * kLineFloats;
}

}  // namespace

GradientBuckets::GradientBuckets(Model& model, Communicator& communicator,
                                 const DdpOptions& options)
    : model_(model),
      communicator_(communicator),
      call_(options.reduction),
      hook_(options.hook != nullptr ? options.hook : make_average_hook()),
      scales_here_(options.hook == nullptr) {}

void GradientBuckets::lay_out(BucketLayout layout) {
  layout_ = std::move(layout);
  homes_.assign(model_.parameters().entries().size(), Home{});
  buckets_.clear();
  memory_.reset();
  std::size_t size = 0;
  for (std::size_t b = 0; b < layout_.size(); ++b) {
    Bucket bucket;
    bucket.offset = size;
    for (const int parameter : layout_[b]) {
      Home& home = homes_.at(static_cast<std::size_t>(parameter));
      home.bucket = static_cast<int>(b);
      home.offset = bucket.offset + bucket.count;
      bucket.count += model_.parameters().entries().at(static_cast<std::size_t>(parameter)).count;
    }
    size += whole_lines(bucket.count);
    buckets_.push_back(std::move(bucket));
  }
  const AccountScope scope(place_of(model_.gradients()));
  memory_ = std::make_unique<CommunicationBuffer<float>>(communicator_, size);
}

void GradientBuckets::begin(float factor) {
  factor_ = factor;
  next_ = 0;
  for (Home& home : homes_) home.taken = false;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].reduction.reset();
    buckets_[b].missing = layout_[b].size();
  }
}

GradientBuckets::Place GradientBuckets::place(int parameter) const {
  const Home& home = homes_.at(static_cast<std::size_t>(parameter));
  if (home.bucket < 0) return Place::kNowhere;
  return home.taken ? Place::kTaken : Place::kOpen;
}

Backend& GradientBuckets::backend() const { return backend_of(model_.gradients()); }

std::span<float> GradientBuckets::slot(int parameter) {
  const auto index = static_cast<std::size_t>(parameter);
  return {memory_->data() + homes_[index].offset, model_.parameters().entries()[index].count};
}

void GradientBuckets::take(int parameter) {
  Home& home = homes_[static_cast<std::size_t>(parameter)];
  home.taken = true;
  --buckets_[static_cast<std::size_t>(home.bucket)].missing;
}

void GradientBuckets::put(int parameter) {
  const std::span<const float> gradient = std::as_const(model_.gradients())[parameter];
  const std::span<float> target = slot(parameter);
  const float factor = scales_here_ ? factor_ : 1.0F;
  backend().scale(gradient.data(), gradient.size(), factor, target.data());
  take(parameter);
}

void GradientBuckets::put_zeros(int parameter) {
  const std::span<float> target = slot(parameter);
  backend().fill(target.data(), target.size(), 0.0F);
  take(parameter);
}

void GradientBuckets::put_zeros_everywhere() {
  for (const int parameter : missing()) put_zeros(parameter);
}

std::vector<int> GradientBuckets::missing() const {
  std::vector<int> missing;
  for (std::size_t i = 0; i < homes_.size(); ++i) {
    if (place(static_cast<int>(i)) == Place::kOpen) missing.push_back(static_cast<int>(i));
  }
  return missing;
}

void GradientBuckets::start_full() {
  const AccountScope scope(place_of(model_.gradients()));
  CallOptions call = call_;
  call.stream = backend().side_stream();
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
    Bucket& bucket = buckets_[next_];
    backend().side_follows_main();
    bucket.reduction = hook_->start({memory_->data() + bucket.offset, bucket.count},
                                    scales_here_ ? 1.0F : factor_, communicator_, call);
  }
}

void GradientBuckets::finish(std::span<const std::uint8_t> wanted) {
  const AccountScope scope(place_of(model_.gradients()));
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].reduction->finish();
    backend().main_follows_side();
    for (const int parameter : layout_[b]) {
      if (wanted[static_cast<std::size_t>(parameter)] == 0) continue;
      const std::span<const float> result = slot(parameter);
      backend().copy(result.data(), result.size(), model_.gradients()[parameter].data());
    }
  }
}

DistributedDataParallel::Progress GradientBuckets::progress() {
  DistributedDataParallel::Progress progress{buckets_.size(), next_, 0};
  for (std::size_t b = 0; b < next_; ++b) {
    if (buckets_[b].reduction->test()) ++progress.finished;
  }
  return progress;
}

}  // namespace unisono::train
